"""Lock files: what a plan resolved to, to be reviewed and compared with later plans.

A policy contains rules; a lock contains their result. It identifies each source by the digest of
its content and each value by its names, dtype, shape and checksum. So it detects another checkpoint
under the same path, a renamed layer, and a rule that now matches something else. Paths and the
policy's name are for information only and are not compared: the same files may have other paths on
another machine.

The text is JSON with one value a line, sorted, for ``diff`` and for reviews.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from typing import TYPE_CHECKING, Any

from tfckpt.core.text import printable
from tfckpt.errors import Problem

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tfckpt.core.inventory import Entry
    from tfckpt.planning.checks.step import Step
    from tfckpt.planning.plan import Plan

    Line = dict[str, Any]

HINT = (
    "if this is intended, write a new lock: tfckpt plan CONFIG --model MODULE:CALLABLE "
    "--lock {file}, or write the text that tfckpt.plan(…).lock() returns to it"
)
_VERSION = 1
_SHOWN = 20


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
    {"path":"zoo/a","sha256":"e3b0…","policy":"finetune","policy_sha256":"44ad…"}],
    "values":[
    {"name":"model/a/kernel","status":"LOADED","dtype":"float32","shape":[2,2],\
"from":"model/a/kernel","stored_dtype":"float32","stored_shape":[2,2],"crc32c":7}]}
    """
    lists = map(dataclasses.asdict, plan.origins), _values(plan)
    sources, values = (",\n".join(map(_json, lines)) for lines in lists)
    return f'{{"version":{_VERSION},\n"sources":[\n{sources}],\n"values":[\n{values}]}}\n'


def drift(
    plan: Plan, text: str | None, file: str, position: tuple[int, int] = (0, 0)
) -> tuple[Problem, ...]:
    """What differs from a lock; ``text`` is None without one, ``position`` that of the key."""
    if text is None:
        found = ["the file does not exist"]
    elif (locked := _parsed(text)) is None:
        found = ["this version of tfckpt cannot read it as a lock"]
    else:
        found = [*_of_sources(plan, locked["sources"]), *_of_values(plan, locked["values"])]
    if len(found) > _SHOWN:
        found[_SHOWN:] = [f"and {len(found) - _SHOWN:,} more"]
    problems = [Problem(f"lock {file}: {printable(what)}", *position) for what in found]
    return (*problems[:-1], *(last._replace(hint=HINT.format(file=file)) for last in problems[-1:]))


def _values(plan: Plan) -> list[Line]:
    paths = [origin.path for origin in plan.origins]
    return [_value(step, paths) for step in plan.steps]


def _value(step: Step, paths: Sequence[str]) -> Line:
    """What a step comes to, without what only says why; long options as a digest."""
    resolved = (json.dumps([x.options, x.rows], sort_keys=True, default=str) for x in step.changes)
    line = {
        "name": step.name or None,
        "status": step.status.value,
        **_type(step.live),
        "from": step.source or None,
        "target": (not step.name and step.target) or None,
        "source": paths.index(step.origin) if step.origin else None,
        **{f"stored_{key}": value for key, value in _type(step.stored).items()},
        "crc32c": step.stored and step.stored.crc32c,
        "parts": [{"from": x.name, **_type(x), "crc32c": x.crc32c} for x in step.parts] or None,
        "changes": [
            {"what": str(change), "sha256": hashlib.sha256(text.encode()).hexdigest()}
            for change, text in zip(step.changes, resolved, strict=True)
        ]
        or None,
    }
    return {key: value for key, value in line.items() if value is not None}


def _type(entry: Entry | None) -> Line:
    if entry is None:
        return {}
    return {"dtype": entry.dtype, "shape": None if entry.shape is None else list(entry.shape)}


def _parsed(text: str) -> Line | None:
    try:
        tree = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(tree, dict) or tree.get("version") != _VERSION:
        return None
    lists = tree.get("sources"), tree.get("values")
    each = (isinstance(x, list) and all(isinstance(line, dict) for line in x) for x in lists)
    return tree if all(each) else None


def _of_sources(plan: Plan, locked: Sequence[Line]) -> Iterator[str]:
    if len(plan.origins) != len(locked):
        yield f"{len(locked)} sources → {len(plan.origins)}"
        return
    for origin, line in zip(plan.origins, locked, strict=True):
        if origin.sha256 != (old := str(line.get("sha256"))):
            yield (
                f"{origin.path}: its content differs from that of {line.get('path')} when it was "
                f"locked: sha256 {old[:12]}… → {origin.sha256[:12]}…"
            )


def _of_values(plan: Plan, locked: Sequence[Line]) -> Iterator[str]:
    before, after = ({_key(x): x for x in lines} for lines in (locked, _values(plan)))
    for key in {**before, **after}:
        old, new = before.get(key, {}), after.get(key, {})
        fields = [field for field in {**old, **new} if old.get(field) != new.get(field)]
        if old and new:
            changes = (f"{x} {_shown(old.get(x))} → {_shown(new.get(x))}" for x in fields)
            yield from [f"{key[0]}: {', '.join(changes)}"] * bool(fields)
        else:
            yield f"{key[0]}: {_summary(old)} → {_summary(new)}"


def _key(line: Mapping[str, Any]) -> tuple[str, ...]:
    """The live name; of an unused value the stored name, target and source."""
    fields = ("name",) if "name" in line else ("from", "target", "source")
    return tuple(str(line.get(field)) for field in fields)


def _summary(line: Mapping[str, Any]) -> str:
    stored = f" from {line['from']}" if "from" in line else ""
    return f"{line.get('status')}{stored}" if line else "nothing"


def _shown(value: Any) -> str:
    return "nothing" if value is None else str(value)


def _json(line: Mapping[str, Any]) -> str:
    return json.dumps(line, ensure_ascii=False, separators=(",", ":"))
