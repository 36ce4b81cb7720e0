"""What the commands about directories, files and configs print.

Each imports what it needs when it is called: `verify` has no use for configs.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tfckpt.cli.terminal import (
    UsageError,
    columns,
    progress,
    show,
    show_json,
)
from tfckpt.core.tables import GAP
from tfckpt.core.text import collapse, one_line, printable, size, wrap
from tfckpt.errors import ARGUMENTS, PolicyError

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from tfckpt.errors import Problem
    from tfckpt.manager.retention import Decision
    from tfckpt.policy import Config, Keep
    from tfckpt.stored.commits.discovery import CheckpointInfo
    from tfckpt.tools.verification import Verdict

_ARGUMENT = re.compile(r"`(\w+)`")  # in the message of a call
_NOTES = 20  # columns that are left for them
_SHOWN = 20
_INDENT = "  "
_ALL = "--json shows all"


@contextlib.contextmanager
def _usage_errors(arguments: Namespace) -> Iterator[None]:
    """Turn an error in the arguments of a call into one in the flags that they come from."""
    try:
        yield
    except PolicyError as error:
        if error.file != ARGUMENTS:
            raise
        texts = ("; ".join(filter(None, (one.message, one.hint))) for one in error.problems)
        raise UsageError(_ARGUMENT.sub(partial(_flag, arguments), "; ".join(texts))) from None


def _flag(arguments: Namespace, match: re.Match[str]) -> str:
    return f"--{match[1]}" if match[1] in arguments else match[0]


def list_directory(arguments: Namespace) -> int:
    """List a directory; returns 1 if any checkpoint in it is damaged or torn."""
    from tfckpt.tools.listing import list_checkpoints

    rules, name = _rules(arguments), arguments.checkpoint_name
    with _usage_errors(arguments):
        found = list_checkpoints(arguments.DIR, keep=rules, checkpoint_name=name)
    if arguments.json:
        rows = [checkpoint.to_json() for checkpoint in found]
        show_json({"version": 1, "directory": arguments.DIR, "checkpoints": rows})
    else:
        _show_listing(found)
    return 1 if any(checkpoint.problem for checkpoint in found) else 0


def _rules(arguments: Namespace) -> tuple[Keep, ...]:
    """The rules of --keep or --config; () without either."""
    if arguments.config is not None:
        from tfckpt.policy import load_config

        manager = load_config(arguments.config).manager
        if manager is None or not manager.rules:
            raise UsageError(
                f"{arguments.config} has no retention rules; add them under manager: keep:, "
                "or use --keep"
            )
        return manager.rules
    if not arguments.keep:
        return ()
    from tfckpt.manager.arguments import rules

    try:
        return rules(None, None, arguments.keep)
    except ValueError as error:
        raise UsageError(f"--{error}") from None


def _show_listing(found: Sequence[CheckpointInfo]) -> None:
    """Print a line for each checkpoint, in the order of `found`."""
    from tfckpt.tools.result_texts import listing_rows

    now = time.time()
    title, rows = listing_rows(found, (), now)
    widths = [max(map(len, column)) for column in zip(title, *rows, strict=True)][:-1]
    metrics = _fitting(found, columns() - sum(widths) - len(GAP) * len(widths) - _NOTES)
    title, rows = listing_rows(found, metrics, now)
    show(title, rows, 1, 2, 3, *range(5, 5 + len(metrics)), wraps=True)


def _fitting(found: Sequence[CheckpointInfo], width: int) -> list[str]:
    """The metrics that have room for a column each; that of the best first."""
    from tfckpt.tools.result_texts import metric

    best = [checkpoint.best_by for checkpoint in found if checkpoint.best_by]
    names = dict.fromkeys([*best, *(name for checkpoint in found for name in checkpoint.metrics)])
    fitting = []
    for name in names:
        cells = (name, *(metric(checkpoint, name) for checkpoint in found))
        needed = max(map(len, cells)) + len(GAP)
        if needed <= width:
            fitting.append(name)
            width -= needed
    return fitting


def verify(arguments: Namespace) -> int:
    """Verify a checkpoint or all of a directory; returns 1 if any is damaged."""
    from tfckpt.tools.verification import verdicts

    found = []
    for verdict in verdicts(arguments.PATH, quarantine=arguments.quarantine, progress=progress):
        found.append(verdict)
        if not arguments.json:
            _print_verdict(verdict)
    ok = all(verdict.ok for verdict in found)
    if arguments.json:
        checkpoints = [verdict.to_json() for verdict in found]
        show_json({"version": 1, "ok": ok, "checkpoints": checkpoints})
    return 0 if ok else 1


def _print_verdict(verdict: Verdict) -> None:
    failed = "damaged" if verdict.damaged else "unknown"
    result, count = failed if verdict.faults else "ok", f"{verdict.values:,} values"
    print(f"{result:<8}{count:>14}{size(verdict.nbytes):>12}  {printable(verdict.path)}")
    alike: dict[tuple[str, str], list[str]] = {}
    for fault in verdict.faults:
        alike.setdefault((fault.file, fault.message), []).append(printable(fault.name))
    shown = list(alike.items())[:_SHOWN]
    for (file, message), names in shown:
        blocks = [block.text for block in collapse(name for name in names if name)]
        if len(blocks) > _SHOWN:
            blocks[_SHOWN:] = [f"… and more values with this fault ({_ALL})"]
        for text in blocks:
            print(f"{_INDENT}{text}")
        reason = f"{printable(os.path.split(file)[1])}: {one_line(message)}"
        print("\n".join(wrap(reason, _INDENT * (2 if blocks else 1))))
    if len(alike) > len(shown):
        print(f"{_INDENT}… and more kinds of faults ({_ALL})")
    if verdict.moved_to:
        print(f"{_INDENT}moved to {printable(verdict.moved_to)}")
    sys.stdout.flush()


def prune(arguments: Namespace) -> int:
    """Delete, or show what would be deleted; returns 1 if a checkpoint could not be deleted."""
    from tfckpt.manager.directory import Directory
    from tfckpt.manager.retention import decide_by_run, undamaged
    from tfckpt.stored.commits.commit import claim
    from tfckpt.stored.io.files import files_of
    from tfckpt.tools.listing import freed_by, listing, of_one_name
    from tfckpt.tools.verification import decided

    path, rules, yes = arguments.DIR, _rules(arguments), arguments.yes
    found = listing(path, files_of(path))
    with _usage_errors(arguments):
        name, rows = of_one_name(path, found, arguments.checkpoint_name)
        decision = decide_by_run(rows, rules)
    _check_rules(path, rules, undamaged(rows), found if arguments.keep else ())
    failed: dict[str, OSError] = {}
    if yes:
        directory = Directory(path, name, files_of(path))
        _, names = claim(path, name, directory.files)  # also completes interrupted deletions
        # Another process may have changed the directory.
        found, decision = decided(path, name, rules)
        failed = directory.release(directory.checkpoints(names), undamaged(found), decision, names)
    freed = freed_by(found, {*decision.delete} - {*failed})
    if arguments.json:
        show_json(
            {
                "version": 1,
                "directory": path,
                "done": yes,
                "kept": {prefix: list(why) for prefix, why in decision.kept.items()},
                "delete": list(decision.delete),
                "failed": {prefix: str(error) for prefix, error in failed.items()},
                "nbytes": freed,
            }
        )
    else:
        _print_pruned(found, decision, freed, yes=yes)
    for prefix, error in failed.items():
        print(f"tfckpt: {printable(prefix)}: could not be deleted: {error}", file=sys.stderr)
    return 1 if failed else 0


def _print_pruned(
    found: list[CheckpointInfo], decision: Decision, freed: int, *, yes: bool
) -> None:
    from tfckpt.tools.listing import with_best, with_decision

    deleted = set(decision.delete)
    shown = [one for one in found if not (yes and one.prefix in deleted)]
    _show_listing(with_decision(with_best(shown), decision))
    count = f"{len(deleted)} checkpoint{'s' * (len(deleted) != 1)} ({size(freed)})"
    if not deleted:
        print("\nnothing to delete")
    elif yes:
        print(f"\ndeleted {count}:")
        print("\n".join(f"  {printable(prefix)}" for prefix in decision.delete))
    else:
        print(f"\n{count} would be deleted; use --yes to delete")


def _check_rules(
    path: str,
    rules: Iterable[Keep],
    saved: Sequence[CheckpointInfo],
    pinnable: Iterable[CheckpointInfo],
) -> None:
    """Refuse rules that cannot apply to any checkpoint, which is rarely intended.

    Every pin must be the number of a ``pinnable`` checkpoint; if that is empty, as for a config,
    which may serve several directories, pins are not checked.
    """
    from tfckpt.manager.remarks import idle

    numbers = {checkpoint.number for checkpoint in pinnable}
    for rule in rules:
        if reason := idle(rule, saved):
            raise UsageError(f"{path}: nothing was deleted: {reason}")
        if numbers and (absent := [n for n in rule.pin or () if n not in numbers]):
            known = ", ".join(str(number) for number in sorted(n for n in numbers if n is not None))
            raise UsageError(f"{path} has no checkpoint {absent[0]} to pin; it has {known}")


def export(arguments: Namespace) -> int:
    """Write a file for other programs, and say what it lacks."""
    from tfckpt.policy import load_policy
    from tfckpt.tools.export import exported

    build, policy = None, arguments.policy and load_policy(arguments.policy)
    if arguments.model is not None:
        from tfckpt.cli.plan import load_objects

        build = partial(load_objects, arguments.model)
    streams = contextlib.redirect_stdout(sys.stderr)  # what the model's code prints
    with _usage_errors(arguments), streams:
        exported(arguments.SRC, arguments.DST, build, policy, say=_say)
    print(f"{printable(arguments.DST)}: written")
    return 0


def _say(text: str) -> None:
    print("\n".join(map(printable, f"tfckpt: {text}".split("\n"))), file=sys.stderr)


def report(arguments: Namespace) -> int:
    """Write the page of a run, and show it with --open."""
    from tfckpt.pages.run_page import report_page

    with _usage_errors(arguments):
        written = report_page(
            arguments.DIR,
            html=arguments.html,
            keep=_rules(arguments),
            checkpoint_name=arguments.checkpoint_name,
            force=arguments.force,
        )
    print(f"{printable(written)}: written")
    if arguments.open:
        import webbrowser

        webbrowser.open(Path(written).resolve().as_uri())
    return 0


def doctor(arguments: Namespace) -> int:
    """Show versions, and what a directory holds."""
    from tfckpt.tools.doctor import doctor as diagnosed

    found = diagnosed(arguments.DIR)
    if arguments.json:
        show_json({"version": 1, "facts": found.to_json()})
    else:
        print("\n".join(map(printable, str(found).splitlines())))
    return 0


def policy_check(arguments: Namespace) -> int:
    """Print the errors of a config; returns 1 if there are any."""
    from tfckpt.policy.load import load_config

    file = arguments.CONFIG
    policies: list[str] = []
    notes: list[str] = []
    problems: tuple[Problem, ...] = ()
    try:
        config = load_config(file)
        policies, notes = sorted(config.policies), _remarks(config)
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


def _remarks(config: Config) -> list[str]:
    """Settings that are valid but perhaps not intended."""
    from tfckpt.manager.remarks import nothing_saved
    from tfckpt.policy.config import directory_mismatch

    message, hint = nothing_saved(config.manager) if config.manager else ("", "")
    saves = f"{message}; {hint}" if message else ""
    return [note for note in (saves, directory_mismatch(config), config.unused_policy_hint) if note]


def policy_schema(_: Namespace) -> int:
    """Print the JSON Schema of configs."""
    import importlib.resources

    schema = importlib.resources.files("tfckpt.policy") / "schema.json"
    print(schema.read_text(encoding="utf-8").rstrip())
    return 0


COMMANDS: Mapping[str, Callable[[Namespace], int]] = {
    "list": list_directory,
    "verify": verify,
    "prune": prune,
    "export": export,
    "report": report,
    "doctor": doctor,
    "policy check": policy_check,
    "policy schema": policy_schema,
}
