"""`tfckpt policy`: `check`, `show` or `suggest` a policy, print the `schema` of configs."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from typing import TYPE_CHECKING, Any

from tfckpt.cli.arguments.command import UsageError
from tfckpt.cli.arguments.json_document import show_json
from tfckpt.core.text import printable
from tfckpt.errors import PolicyError, TfckptError
from tfckpt.manager.remarks import nothing_saved
from tfckpt.planning.pairs import paired
from tfckpt.planning.report import verdict
from tfckpt.policy.directories import directory_mismatch
from tfckpt.policy.load import CONFIGS, load_config

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tfckpt.cli.arguments.command import Arguments
    from tfckpt.errors import Problem
    from tfckpt.planning import Plan
    from tfckpt.planning.suggested import Suggestion
    from tfckpt.policy import Config, Policy


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
    from tfckpt.policy import schema

    if arguments.positional:
        raise UsageError("policy schema takes no arguments")
    print(json.dumps(schema(), indent=2))
    return 0


def run_suggest(arguments: Arguments) -> int:
    """Print what makes a refused restore possible, and write it to a config with --write."""
    from tfckpt.cli.commands.plan import plan_for  # imports TensorFlow

    source = arguments.single("a checkpoint, a directory or a config")
    if (target := arguments.text("model")) is None:
        raise UsageError("policy suggest needs --model MODULE:CALLABLE, which returns the model")
    with contextlib.redirect_stdout(sys.stderr):
        plan = plan_for(source, target)
        found = plan.suggestion
    policy = found.policy if found is not None else None
    file = arguments.text("write") if policy is not None else None
    if arguments.json:
        show_json(_suggestion(plan, found))
    elif plan.ok:
        print(f"no policy is needed: {verdict(plan)}")
    elif found is None:
        print(f"{plan}\n\nno policy was found that would restore it")
    else:
        print(found)
    if file is not None and policy is not None:
        _write_config(file, source, policy)
        if not arguments.json:
            print(f"\nwritten to {printable(file)}")
    return 0 if plan.ok or policy is not None else 1


def _suggestion(plan: Plan, found: Suggestion | None) -> dict[str, Any]:
    """The JSON document of what was found for a plan."""
    policy = found.policy if found is not None else None
    carried_out = plan if plan.ok else found and found.plan
    restored, *left = paired(carried_out or plan)
    if carried_out is None:
        left, restored = [restored, *left], []
    return {
        "version": 1,
        "source": plan.source,
        "ok": plan.ok,
        "policy": _keys(policy) if policy is not None else {} if plan.ok else None,
        "suggestion": dict(found.changes) if found else {},
        "restored": [pair.to_json() for pair in restored],
        "left": [pair.to_json() for pairs in left for pair in pairs],
        "choices": [choice.to_json() for choice in (found.choices if found else ())],
        "gave_up": found.gave_up if found else "",
    }


def _keys(policy: Policy) -> dict[str, Any]:
    return policy.model_dump(mode="json", by_alias=True, exclude_unset=True, exclude={"name"})


def _write_config(file: str, source: str, policy: Policy) -> None:
    """Write a config that restores a checkpoint by a policy.

    Raises:
        TfckptError: the file exists, or cannot be written.
        UsageError: the source is a config, which has policies of its own.
    """
    import yaml

    if source.endswith(CONFIGS):
        raise UsageError(f"--write needs a checkpoint, not a config: add the lines to {source}")
    kind = "directory" if os.path.isdir(source) else "path"  # noqa: PTH112  as it was typed
    keys = _keys(policy)
    keys = {"api": "read", **keys}  # a run has a save counter, which this plan had not
    restore = {kind: source.replace("$", "$$"), "policy": "suggested"}
    config = {"version": 1, "restore": restore, "policies": {"suggested": keys}}
    text = yaml.safe_dump(config, sort_keys=False, allow_unicode=True, width=100)
    try:
        with open(file, "x", encoding="utf-8") as stream:  # noqa: PTH123  as it was typed
            stream.write(text)
    except FileExistsError:
        raise TfckptError(f"{file} already exists; choose another name") from None
    except OSError as error:
        raise TfckptError(f"{file}: cannot write the config: {error}") from None


def run_show(arguments: Arguments) -> int:
    """Print a config with presets, variables and defaults resolved; the output can be loaded."""
    import yaml

    file = arguments.single("a config file")
    config = _config(load_config(file))
    if arguments.json:
        show_json({"version": 1, "file": file, "config": config})
    else:
        text = yaml.safe_dump(config, sort_keys=False, allow_unicode=True, width=80)
        print("\n".join(map(printable, text.rstrip().split("\n"))))
    return 0


def _config(loaded: Config) -> dict[str, Any]:
    """The resolved config, without keys that are redundant or have no effect beside others."""
    config = loaded.model_dump(mode="json", by_alias=True, exclude_none=True)
    for policy, shown in _policies(loaded, config):
        if (
            "training_state" not in policy.model_fields_set
        ):  # then its default depends on the directory
            shown.pop("training_state")
    for policy in config["policies"].values():
        del policy["name"]
    manager = config.get("manager", {})
    if not manager.get("enable_async", True):
        del manager["if_busy"]
    if not manager.get("save", {}).get("on_signal", True):
        del manager["save"]["grace_seconds"]
    _sources(config.get("restore", {}))
    expanded = ("manager", "restore")  # keys whose values may have ${VARIABLES}
    return {
        key: _escape_dollars(value) if key in expanded else value for key, value in config.items()
    }


def _policies(loaded: Config, config: dict[str, Any]) -> Iterator[tuple[Policy, dict[str, Any]]]:
    """The policies of a config, inline ones included, each with its mapping in the output."""
    yield from ((policy, config["policies"][name]) for name, policy in loaded.policies.items())
    sources = loaded.restore.first_of if loaded.restore else ()
    for source, shown in zip(sources, config.get("restore", {}).get("first_of", ()), strict=True):
        for member, part in zip(source.members, shown.get("all_of", [shown]), strict=True):
            if not isinstance(member.policy, str):
                yield member.policy, part["policy"]


def _sources(holder: dict[str, Any], *, part: bool = False) -> None:
    """Remove redundant keys from the sources in ``first_of``, and in ``all_of`` of each."""
    for source in holder.get("all_of" if part else "first_of", ()):
        policy = source["policy"]
        if "directory" not in source:  # one checkpoint by path, or all_of
            for key in ("checkpoint_name", "select"):
                source.pop(key, None)
        if isinstance(policy, dict):
            del policy["name"]
        if part:
            del source["on_damaged"]
        if "all_of" in source:
            del source["policy"]
            _sources(source, part=True)


def _escape_dollars(value: Any, key: str = "") -> Any:
    """Write `$` as `$$`: variables are expanded already, so that a remaining `$` is literal."""
    if isinstance(value, dict):
        # The selectors of an inline policy are not expanded.
        inline = key == "policy"
        return value if inline else {k: _escape_dollars(v, k) for k, v in value.items()}
    if isinstance(value, list):
        return [_escape_dollars(item) for item in value]
    return value.replace("$", "$$") if isinstance(value, str) else value
