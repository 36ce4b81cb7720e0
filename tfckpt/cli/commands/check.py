"""`tfckpt policy check`: whether a config means something, without a model or a checkpoint."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tfckpt.core.text import printable
from tfckpt.errors import PolicyError
from tfckpt.manager.remarks import nothing_saved
from tfckpt.policy.directories import apart
from tfckpt.policy.load import load_config

if TYPE_CHECKING:
    from tfckpt.cli.arguments.command import Given
    from tfckpt.errors import Problem
    from tfckpt.policy import Config


def run(given: Given) -> int:
    """Show what is wrong with a config; 1 where anything is."""
    file = given.one("a config file")
    policies: list[str] = []
    notes: list[str] = []
    problems: tuple[Problem, ...] = ()
    try:
        config = load_config(file)
        policies, notes = sorted(config.policies), _notes(config)
    except PolicyError as error:
        if not given.json:
            raise
        problems = error.problems
    if given.json:
        document = {
            "version": 1,
            "file": file,
            "ok": not problems,
            "policies": policies,
            "problems": [problem._asdict() for problem in problems],
            "notes": notes,
        }
        print(json.dumps(document, indent=2))
    else:
        print(f"{printable(file)}: fine ({', '.join(policies) or 'no policies of its own'})")
        for note in notes:
            print(f"note: {printable(note)}")
    return 1 if problems else 0


def _notes(config: Config) -> list[str]:
    """What is no error, and perhaps not meant."""
    message, hint = nothing_saved(config.manager) if config.manager else ("", "")
    saves = f"{message}; {hint}" if message else ""
    return [note for note in (saves, apart(config), config.forgotten) if note]
