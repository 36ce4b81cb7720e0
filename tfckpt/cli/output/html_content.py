"""The content of an HTML page from a JSON document of `inspect`, `diff`, `plan` or a restore.

A document may come from an untrusted file: a missing field or a value of the wrong type is an
error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tfckpt.cli.output.html_page import Content, Item, reason, roles
from tfckpt.core.text import one_line, size
from tfckpt.stored.formats.checkpoint import KINDS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_Document = dict[str, Any]
_STATUSES = (
    ("LOADED", "green", "restored"),
    ("RENAMED", "teal", "restored under another name"),
    ("CAST", "blue", "restored with another dtype"),
    ("ADAPTED", "blue", "restored after an adapt rule changed it"),
    ("EXCLUDED", "grey", "not restored, because the policy excludes it"),
    ("RESET", "grey", "reset to its initial value by the policy"),
    ("MISSING", "amber", "selected, but not in the checkpoint"),
    ("UNEXPECTED", "orange", "in the checkpoint, but not used"),
    ("MISMATCH", "red", "shape or dtype differ, or several stored values match it"),
    ("SUSPECT", "red", "the name matches, but its position in the model does not"),
)
# What a status means in a plan; above, what it means in a report of a restore.
_PLANNED = {
    "LOADED": "has a value to restore",
    "RENAMED": "has a value to restore, under another name",
    "CAST": "has a value to restore, with another dtype",
    "ADAPTED": "has a value to restore, after an adapt rule changes it",
    "RESET": "will be reset to its initial value by the policy",
}
_KINDS = (
    ("only in a", "orange", "removed"),
    ("only in b", "violet", "added"),
    ("different shape", "red", "same name"),
    ("different type", "amber", "same name and shape"),
    ("moved", "teal", "the same value under another name"),
    ("different value", "blue", "same name, shape and type"),
)
_KIND_OF = dict(zip(("only_a", "only_b", "shape", "dtype", "moved", "value"), _KINDS, strict=True))
_SEVERITIES = ("error", "warn", "note")
_TITLES = {"error": "Refused", "warn": "Warnings", "note": "Notes"}


def content(document: _Document) -> Content:
    """The content of the page for a document.

    Raises:
        KeyError, TypeError, ValueError: the document is of no known kind, or not valid.
    """
    if "steps" in document:
        return _plan(document)
    if "plan" in document:
        return _plan(document["plan"])
    if "differences" in document:
        return _differences(document)
    return _checkpoint(document)


def _checkpoint(document: _Document) -> Content:
    hues = {role: hue for role, hue, _ in roles()}
    statistics = document.get("statistics") or {}
    items = [
        Item(
            str(value["name"]),
            _signature(value),
            _size(value),
            str(value["role"]),
            hues.get(value["role"], "grey"),
            statistics=statistics.get(value["name"]),
        )
        for value in document["values"]
    ]
    metadata = [KINDS.get(document["kind"], str(document["kind"]))]
    metadata += [
        f"{word} {document[word]}" for word in ("step", "epoch") if document[word] is not None
    ]
    metadata += [f"{name} {value:g}" for name, value in document["metrics"].items()]
    missing = [str(path) for path in document["missing_shards"]]
    noun = "file is" if len(missing) == 1 else "files are"
    verdict = (f"{len(missing)} {noun} missing: {', '.join(missing)}", "red")
    path = str(document["prefix"])
    verdict_shown = verdict if missing else None
    return Content(path, [", ".join(metadata)], ("role", "meaning"), roles(), items, verdict_shown)


def _differences(document: _Document) -> Content:
    items = []
    for one in document["differences"]:
        tag, hue, _ = _KIND_OF[one["kind"]]
        sides = [side for side in (one["a"], one["b"]) if side is not None]
        types = " → ".join(dict.fromkeys(map(_signature, sides)))
        name = str(sides[-1]["name"])
        note = f"renamed from {sides[0]['name']}" if sides[0]["name"] != name else ""
        if one.get("largest") is not None:
            note = f"{int(one['differing']):,} elements differ, by at most {one['largest']:.3g}"
            if one.get("relative") is not None:
                note += f" ({one['relative']:.3g} relative)"
        items.append(Item(name, types, max(map(_size, sides)), tag, hue, note))
    equal = int(document["equal"])
    verb = "value differs" if len(items) == 1 else "values differ"
    counts = f"{len(items):,} {verb}, {equal:,} equal"
    verdict = (counts, "amber") if items else (f"no differences: {equal:,} values equal", "green")
    sides_shown = [f"a: {document['a']}", f"b: {document['b']}"]
    head = ("difference", "meaning")
    return Content("Differences", sides_shown, head, _KINDS, items, verdict)


def _plan(document: _Document) -> Content:
    hues = {status: hue for status, hue, _ in _STATUSES}
    items = []
    for step in document["steps"]:
        sides = [side for side in (step["live"], step["stored"]) if side is not None]
        name, source = str(step["name"] or step["source"]), str(step["source"])
        notes = [f"from {source}"] if source and source != name else []
        notes += [step["reason"]] if step["reason"] else []
        types = " ← ".join(dict.fromkeys(map(_signature, sides)))
        status = str(step["status"])
        nbytes = max(map(_size, sides), default=0)
        items.append(Item(name, types, nbytes, status, hues[status], "; ".join(notes)))
    done = "path" in document
    counted = sum(
        int(document["counts"].get(s, 0)) for s in ("LOADED", "RENAMED", "CAST", "ADAPTED")
    )
    total = f"{counted:,} value{'s' * (counted != 1)}, {size(int(document['nbytes']))}"
    if document["ok"]:
        verdict = (f"{'restored' if done else 'would be restored'}: {total}", "green")
    else:
        verdict = ("refused: nothing would be restored", "red")
    lines = ["no checkpoint yet", *(document.get("absent") or ())]
    if document["source"]:
        lines = [f"from {document['source']} under policy {document['policy']!r}"]
    lines += [str(document["training"])] if document["ok"] and document.get("training") else []
    lines += [
        f"{setting['name']}: was {setting['code']}, now {setting['checkpoint']}"
        for setting in document.get("replaced") or ()
    ]
    lines += [f"policies in {document['file']}"] if document["file"] else []
    lines += [f"passed over: {one_line(str(why))}" for why in document.get("rejected") or ()]
    statuses = _STATUSES if done else tuple((s, h, _PLANNED.get(s, m)) for s, h, m in _STATUSES)
    title = "Restore report" if done else "Restore plan"
    reasons = "\n".join((*_problems(document), *_reasons(document, hues)))
    return Content(title, lines, ("status", "meaning"), statuses, items, verdict, reasons)


def _problems(document: _Document) -> Iterator[str]:
    if document["problems"]:
        yield "<h2>Problems</h2>"
    for problem in document["problems"]:
        line = f" (line {problem['line']})" if problem["line"] else ""
        yield reason("", "red", f"{problem['message']}{line}", str(problem["hint"]), ())


def _reasons(document: _Document, hues: Mapping[str, str]) -> Iterator[str]:
    """Steps that are not ok, grouped by reason, the most severe first."""
    grouped: dict[str, dict[tuple[str, str, str], list[str]]] = {s: {} for s in _SEVERITIES}
    for step in document["steps"]:
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
            yield reason(status, hues[status], why, hint_shown, groups[key])


def _signature(value: Mapping[str, Any]) -> str:
    shape = value["shape"]
    if shape is None:
        return "object"
    return f"{value['dtype']} ({', '.join(str(int(axis)) for axis in shape)})"


def _size(value: Mapping[str, Any]) -> int:
    nbytes = int(value["nbytes"])
    if nbytes < 0:
        raise ValueError("a size is negative")
    return nbytes
