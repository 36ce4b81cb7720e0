"""`tfckpt policy`: `check` or `show` a config, print the `schema` of configs."""

from __future__ import annotations

import importlib.resources
import json
from typing import TYPE_CHECKING

from tfckpt.cli.arguments.command import UsageError
from tfckpt.cli.arguments.json_document import show_json
from tfckpt.core.text import printable
from tfckpt.errors import PolicyError
from tfckpt.manager.remarks import nothing_saved
from tfckpt.policy.config import directory_mismatch
from tfckpt.policy.load import load_config

if TYPE_CHECKING:
    from tfckpt.cli.arguments.command import Arguments
    from tfckpt.errors import Problem
    from tfckpt.policy import Config


def run_check(arguments: Arguments) -> int:
    """Print the errors of a config; returns 1 if there are any."""
    file = arguments.single("a config file")
    policies: list[str] = []
    notes: list[str] = []
    problems: tuple[Problem, ...] = ()
    try:
        config = load_config(file)
        policies, notes = sorted(config.policies), _notes(config)
    except PolicyError as error:
        if not arguments.json:
            raise
        problems = error.problems
    if arguments.json:
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
        print(f"{printable(file)}: valid ({', '.join(policies) or 'defines no policies'})")
        for note in notes:
            print(f"note: {printable(note)}")
    return 1 if problems else 0


def _notes(config: Config) -> list[str]:
    """Settings that are valid but perhaps not intended."""
    message, hint = nothing_saved(config.manager) if config.manager else ("", "")
    saves = f"{message}; {hint}" if message else ""
    return [note for note in (saves, directory_mismatch(config), config.unused_policy_hint) if note]


def run_schema(arguments: Arguments) -> int:
    """Print the JSON Schema of configs."""
    if arguments.positional:
        raise UsageError("policy schema takes no arguments")
    schema = importlib.resources.files("tfckpt.policy") / "schema.json"
    print(schema.read_text(encoding="utf-8").rstrip())
    return 0


def run_show(arguments: Arguments) -> int:
    """Print what is understood of a config, with presets, variables and defaults resolved."""
    import yaml

    file = arguments.single("a config file")
    config = load_config(file).model_dump(mode="json", by_alias=True, exclude_none=True)
    if arguments.json:
        show_json({"version": 1, "file": file, "config": config})
    else:
        text = yaml.safe_dump(config, sort_keys=False, allow_unicode=True, width=80)
        print("\n".join(map(printable, text.rstrip().split("\n"))))
    return 0
