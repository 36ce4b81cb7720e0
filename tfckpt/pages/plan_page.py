"""The page of a plan or of a restore: the verdict, what speaks against it, then every value."""

from __future__ import annotations

import json
from html import escape
from typing import TYPE_CHECKING, Any

from tfckpt.core.text import collapse, natural, one_line, printable, size
from tfckpt.pages.checkpoint_page import PARTS, ROLES, nbytes_of, rank_of, signature, sizes
from tfckpt.pages.shell import Page, counted, facts, number, tag, text, title_of, verdict
from tfckpt.pages.value_table import Column, Filter, ValueRow, ValueTable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_DONE = (
    Filter("MISMATCH", "red", "shape or dtype differ, or several stored values match it"),
    Filter("SUSPECT", "red", "the name matches, but its position in the model does not"),
    Filter("MISSING", "amber", "selected, but not in the checkpoint"),
    Filter("UNEXPECTED", "orange", "in the checkpoint, but not used"),
    Filter("RESET", "grey", "reset to its initial value by the policy"),
    Filter("EXCLUDED", "grey", "not restored, because the policy excludes it"),
    Filter("ADAPTED", "blue", "restored after an adapt rule changed it"),
    Filter("CAST", "blue", "restored with another dtype"),
    Filter("RENAMED", "teal", "restored under another name"),
    Filter("LOADED", "green", "restored"),
)
# What a status means in a plan; above, what it means in a report of a restore.
_PLANNED = {
    "LOADED": "has a value to restore",
    "RENAMED": "has a value to restore, under another name",
    "CAST": "has a value to restore, with another dtype",
    "ADAPTED": "has a value to restore, after an adapt rule changes it",
    "RESET": "will be reset to its initial value by the policy",
}
# Nothing is restored if one value is refused; then none of them is shown as if it were.
_REFUSED = {
    "LOADED": "fits",
    "RENAMED": "fits, under another name",
    "CAST": "fits, with another dtype",
    "ADAPTED": "fits, after an adapt rule",
    "RESET": "is reset by the policy",
}
_SEVERITIES = ("error", "warn", "note")
_ORDER = [one.tag for one in _DONE]
_TITLES = {"error": "Refused", "warn": "Warnings", "note": "Notes"}
_MAX_LISTED = 8  # lines of names that are shown unfolded
_COLUMNS = [
    Column("status"),
    Column("in the checkpoint"),
    Column("in the model"),
    Column("size", "bytes"),
    Column("why"),
]


def plan_page(document: Mapping[str, Any]) -> Page:
    """The page for a document of ``plan``, or for the report of a restore."""
    done = "path" in document
    source = str(document["source"])
    title = title_of(source) if source else "no checkpoint"
    return Page("Restore" if done else "Plan", title, list(_body(document, done=done)), source)


def _body(document: Mapping[str, Any], *, done: bool) -> Iterator[str]:
    ok = bool(document["ok"])
    steps = sorted(document["steps"], key=lambda step: _order(step["severity"]))
    filters = _filters(done=done, ok=ok)
    hues = {one.tag: one.hue for one in filters}
    yield _verdict(document, done=done)
    yield facts(_facts(document, done=done))
    yield from _training(document)
    yield from _suggested(document)
    yield from _problems(document)
    yield from _reasons(steps, hues)
    yield from _policy(document)
    rows = [_row(step, hues) for step in steps]
    if rows:
        yield from sizes(rows, "Sizes", PARTS)
        yield "<h2>Values</h2>"
        sort = "" if ok else "status"
        yield from ValueTable(_COLUMNS, rows, [filters, ROLES], sort=sort).render()


def _filters(*, done: bool, ok: bool) -> list[Filter]:
    if not ok:
        return [
            one._replace(hue="grey", meaning=_REFUSED[one.tag]) if one.tag in _REFUSED else one
            for one in _DONE
        ]
    return (
        list(_DONE)
        if done
        else [one._replace(meaning=_PLANNED.get(one.tag, one.meaning)) for one in _DONE]
    )


def _order(severity: object) -> int:
    return _SEVERITIES.index(str(severity)) if severity in _SEVERITIES else len(_SEVERITIES)


def _verdict(document: Mapping[str, Any], *, done: bool) -> str:
    counted_ = sum(
        int(document["counts"].get(status, 0))
        for status in ("LOADED", "RENAMED", "CAST", "ADAPTED")
    )
    total = f"{counted(counted_, 'value')}, {size(int(document['nbytes']))}"
    if not document["ok"]:
        return verdict("refused: nothing would be restored", "red")
    if not document["source"]:
        return verdict("no checkpoint yet: training starts from the initial values", "amber")
    return verdict(f"{'restored' if done else 'would be restored'}: {total}", "green")


def _facts(document: Mapping[str, Any], *, done: bool) -> Iterator[tuple[str, str]]:
    if document["source"]:
        yield "policy", str(document["policy"])
    yield "chosen", str(document.get("chosen") or "")
    yield "config", str(document["file"] or "")
    if done:
        for word in ("step", "epoch"):
            if document.get(word) is not None:
                yield word, f"{int(document[word]):,}"
        for name, value in (document.get("metrics") or {}).items():
            yield str(name), number(value, 6)
    for setting in document.get("replaced") or ():
        yield str(setting["name"]), f"was {setting['code']}, now {setting['checkpoint']}"


def _training(document: Mapping[str, Any]) -> Iterator[str]:
    """What of the training comes back besides the values, and what was passed over."""
    state = [str(key) for key in document.get("training_state") or ()]
    sentence = str(document.get("training") or "")
    if document["ok"] and (sentence or state):
        yield "<h2>What of the training comes back</h2>"
        yield f"<p>{text(sentence)}</p>" if sentence else ""
        yield f"<p>{' '.join(tag(key, 'green') for key in state)}</p>" if state else ""
    lines = [f"passed over: {one_line(str(why))}" for why in document.get("rejected") or ()]
    lines += [one_line(str(line)) for line in document.get("absent") or ()]
    if lines:
        items = "".join(f"<li>{text(line)}</li>" for line in lines)
        yield f'<h2>Where it looked</h2><ul class="list">{items}</ul>'


def _suggested(document: Mapping[str, Any]) -> Iterator[str]:
    if changes := document.get("suggestion"):
        yield "<h2>What would make it possible</h2><p>In the policy:</p>"
        yield f"<pre>{_yaml(changes)}</pre>"


def _policy(document: Mapping[str, Any]) -> Iterator[str]:
    for name, keys in (document.get("policies") or {}).items():
        shown = _yaml(keys) or "# nothing is written: all keys have their defaults"
        yield f"<h2>Policy {text(name)}</h2><pre>{shown}</pre>"


def _yaml(mapping: Mapping[str, Any]) -> str:
    """The keys of a mapping as lines of YAML, which JSON is a part of."""
    return "\n".join(
        f"{text(key)}: {text(json.dumps(value, ensure_ascii=False))}"
        for key, value in mapping.items()
    )


def _problems(document: Mapping[str, Any]) -> Iterator[str]:
    if document["problems"]:
        yield "<h2>Problems</h2>"
    for problem in document["problems"]:
        line = f" (line {problem['line']})" if problem["line"] else ""
        message, hint = f"{problem['message']}{line}", str(problem["hint"])
        yield _reason("", "error", message, hint, ())


def _reasons(steps: Sequence[Mapping[str, Any]], hues: Mapping[str, str]) -> Iterator[str]:
    """Steps that are not ok, grouped by reason, the most severe first; a hint stands once."""
    grouped: dict[str, dict[tuple[str, str, str], list[str]]] = {s: {} for s in _SEVERITIES}
    for step in steps:
        if (groups := grouped.get(step["severity"])) is not None:
            key = str(step["status"]), str(step["reason"]), str(step["hint"])
            groups.setdefault(key, []).append(str(step["name"] or step["source"]))
    for severity, groups in grouped.items():
        if groups:
            yield f"<h2>{_TITLES[severity]}</h2>"
        last = {hint: (status, why) for status, why, hint in groups}
        order = list(last)  # reasons that share a hint are adjacent; the last one shows it
        for key in sorted(groups, key=lambda key: order.index(key[2])):
            status, why, hint = key
            hint_shown = hint if last[hint] == (status, why) else ""
            mark = f"{tag(status, hues[status])} "
            yield _reason(mark, severity, why, hint_shown, groups[key])


def _reason(mark: str, severity: str, why: str, hint: str, names: Sequence[str]) -> str:
    """One reason with its hint and the values it applies to; a long list of names is folded."""
    shown = collapse(sorted(map(printable, names), key=natural))
    lines = "".join(
        f"<li><code>{escape(block.text)}</code>{f' ×{block.count}' if block.count > 1 else ''}</li>"
        for block in shown
    )
    listed = f"<ul>{lines}</ul>" if shown else ""
    if len(shown) > _MAX_LISTED:
        listed = f"<details><summary>{len(names):,} values</summary>{listed}</details>"
    advice = f'<p class="hint">→ {text(hint)}</p>' if hint else ""
    return f'<div class="reason {severity}"><p>{mark}{text(why)}</p>{advice}{listed}</div>'


def _row(step: Mapping[str, Any], hues: Mapping[str, str]) -> ValueRow:
    live, stored = step["live"], step["stored"]
    status, name, source = str(step["status"]), str(step["name"]), str(step["source"])
    role = str(step.get("role") or "weight")
    nbytes = max((nbytes_of(side) for side in (live, stored) if side is not None), default=0)
    named = bool(name) and bool(source) and name != source
    order = len(_ORDER) * _order(step["severity"]) + _ORDER.index(status)
    cells = [
        tag(status, hues[status], order),
        _side(source if named else "", stored),
        _side(name if named else "", live),
        size(nbytes),
        text(str(step["reason"])),
    ]
    return ValueRow(name or source, cells, nbytes, [status, role], hues[status], rank_of(role))


def _side(name: str, value: Mapping[str, Any] | None) -> str:
    """The type of a value on one side, and its name where that differs."""
    if value is None:
        return '<span class="quiet">–</span>'
    shown = f"<code>{text(name)}</code><br>" if name else ""
    return f"{shown}{signature(value)}"
