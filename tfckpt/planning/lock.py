"""Lock files: what a plan resolved to, to be reviewed and compared with later plans.

A policy contains rules; a lock contains their result. It identifies each source by the digest of
its content and each value by its names, dtype, shape and checksum. So it detects another checkpoint
under the same path, a renamed layer, and a rule that now matches something else. Paths and the
policy's name are for information only and are not compared: the same files may have other paths on
another machine.

The text is JSON with one value a line, sorted, for ``diff`` and for reviews.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

from tfckpt.core.text import printable
from tfckpt.errors import Problem
from tfckpt.planning.checks.step import Status

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tfckpt.core.inventory import Entry
    from tfckpt.planning.adaptation.change import Change
    from tfckpt.planning.checks.step import Step
    from tfckpt.planning.plan import Plan

VERSION = 1
HINT = (
    "if this is intended, write a new lock: tfckpt plan CONFIG --model MODULE:CALLABLE "
    "--lock {file}, or write the text that tfckpt.plan(…).lock() returns to it"
)
_SHOWN = 20
_Line = dict[str, Any]


def render(plan: Plan) -> str:
    """The content of the lock file of a plan.

    >>> from tfckpt.planning.plan import Plan
    >>> from tfckpt.planning.checks.step import Status, Step
    >>> from tfckpt.core.inventory import Entry, Origin, Role
    >>> kernel = Entry("model/a/kernel", Role.WEIGHT, "float32", (2, 2), 16, crc32c=7)
    >>> step = Step(Status.LOADED, kernel.name, kernel.name, kernel, kernel)
    >>> origin = Origin("zoo/a", "e3b0…", "finetune", "44ad…")
    >>> print(render(Plan("finetune", "zoo/a", (step,), origins=(origin,))), end="")
    {"version":1,
    "sources":[
    {"sha256":"e3b0…","path":"zoo/a","policy":"finetune"}],
    "values":[
    {"name":"model/a/kernel","status":"LOADED","dtype":"float32","shape":[2,2],\
"from":"model/a/kernel","stored_dtype":"float32","stored_shape":[2,2],"crc32c":7}]}
    """
    sources, values = (",\n".join(map(_json, lines)) for lines in (_sources(plan), _values(plan)))
    return f'{{"version":{VERSION},\n"sources":[\n{sources}],\n"values":[\n{values}]}}\n'


def drift(
    plan: Plan, text: str | None, file: str, position: tuple[int, int] = (0, 0)
) -> tuple[Problem, ...]:
    """What differs from a lock; ``text`` is None without one, ``position`` that of the key."""
    locked = _parse(text or "")
    if text is None:
        differences = ["the file does not exist"]
    elif locked is None:
        differences = ["this version of tfckpt cannot read it as a lock"]
    else:
        differences = [*_of_sources(plan, locked["sources"]), *_of_values(plan, locked["values"])]
    if len(differences) > _SHOWN:
        differences[_SHOWN:] = [f"and {len(differences) - _SHOWN:,} more"]
    problems = [Problem(f"lock {file}: {printable(what)}", *position) for what in differences]
    return (*problems[:-1], *(last._replace(hint=HINT.format(file=file)) for last in problems[-1:]))


def _sources(plan: Plan) -> list[_Line]:
    lines = []
    for origin in plan.origins:
        line: _Line = {"sha256": origin.sha256, "path": origin.path, "policy": origin.policy}
        if origin.average:
            line["average"] = [
                {"sha256": share.sha256, "path": share.path, "weight": share.weight}
                for share in origin.average
            ]
        lines.append(line)
    return lines


def _values(plan: Plan) -> list[_Line]:
    paths = [origin.path for origin in plan.origins]
    return [_value(step, paths) for step in plan.steps]


def _value(step: Step, paths: Sequence[str]) -> _Line:
    line: _Line = {"name": step.name} if step.name else {}
    line["status"] = step.status.value
    if step.live is not None:
        line |= _type(step.live)
    if step.stored is not None:
        line["from"] = step.source
        if step.target and step.status is Status.UNEXPECTED:
            line["target"] = step.target
        if step.origin:
            line["source"] = paths.index(step.origin)
        line |= {f"stored_{key}": value for key, value in _type(step.stored).items()}
        if step.stored.crc32c is not None:
            line["crc32c"] = step.stored.crc32c
    if step.parts:
        line["parts"] = [
            {"from": part.name, **_type(part), "crc32c": part.crc32c} for part in step.parts
        ]
    if step.changes:
        line["changes"] = [_change(change) for change in step.changes]
    return line


def _change(change: Change) -> _Line:
    """A change of a value, with a digest of options that are too long for a line."""
    resolved = json.dumps([change.options, change.rows], sort_keys=True, default=str)
    return {"what": str(change), "sha256": hashlib.sha256(resolved.encode()).hexdigest()}


def _type(entry: Entry) -> _Line:
    shape = None if entry.shape is None else list(entry.shape)
    return {"dtype": entry.dtype, "shape": shape}


def _parse(text: str) -> _Line | None:
    try:
        tree = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(tree, dict) or tree.get("version") != VERSION:
        return None
    for lines in (tree.get("sources"), tree.get("values")):
        if not isinstance(lines, list) or not all(isinstance(line, dict) for line in lines):
            return None
    return tree


def _of_sources(plan: Plan, locked: Sequence[_Line]) -> Iterator[str]:
    if len(plan.origins) != len(locked):
        yield f"{len(locked)} sources → {len(plan.origins)}"
        return
    for origin, line in zip(plan.origins, locked, strict=True):
        if origin.sha256 != (old := str(line.get("sha256"))):
            yield (
                f"{origin.path}: its content differs from that of {line.get('path')} when it was "
                f"locked: sha256 {old[:12]}… → {origin.sha256[:12]}…"
            )


def _of_values(plan: Plan, locked: Sequence[_Line]) -> Iterator[str]:
    before, after = _by_key(locked), _by_key(_values(plan))
    for key in {**before, **after}:
        old, new = before.get(key), after.get(key)
        if old == new:
            continue
        if old is None or new is None:
            yield f"{key[0]}: {_summary(old)} → {_summary(new)}"
            continue
        fields = (field for field in {**old, **new} if old.get(field) != new.get(field))
        changes = (f"{f} {_shown(old.get(f))} → {_shown(new.get(f))}" for f in fields)
        yield f"{key[0]}: {', '.join(changes)}"


def _by_key(lines: Sequence[_Line]) -> dict[tuple[str, ...], _Line]:
    """Lines by live name; those of unused values by stored name, target and source."""
    by_key: dict[tuple[str, ...], _Line] = {}
    for line in lines:
        if "name" in line:
            by_key[(str(line["name"]),)] = line
        else:
            by_key[tuple(str(line.get(part)) for part in ("from", "target", "source"))] = line
    return by_key


def _summary(line: Mapping[str, Any] | None) -> str:
    if line is None:
        return "nothing"
    stored = f" from {line['from']}" if "from" in line else ""
    return f"{line.get('status')}{stored}"


def _shown(value: Any) -> str:
    return "nothing" if value is None else str(value)


def _json(line: _Line) -> str:
    return json.dumps(line, ensure_ascii=False, separators=(",", ":"))
