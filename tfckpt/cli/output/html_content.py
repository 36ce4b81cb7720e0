"""Documents of `inspect`, `diff`, `plan` and restore reports → what a page shows of them.

A document may come from a file, which anybody may have written: what is no number where one is
expected, or has no field of a name, is an error.
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
    ("CAST", "blue", "restored in another type"),
    ("ADAPTED", "blue", "changed on the way by an adapt rule"),
    ("EXCLUDED", "grey", "left alone by the policy"),
    ("RESET", "grey", "started anew by the policy"),
    ("MISSING", "amber", "selected, and not in the checkpoint"),
    ("UNEXPECTED", "orange", "in the checkpoint, and used by nothing"),
    ("MISMATCH", "red", "shape or type differ, or several values are meant for it"),
    ("SUSPECT", "red", "its name fits, its place does not"),
)
# Of a plan, refused or not, and of what has happened.
_WOULD_BE = {
    "LOADED": "has a value to restore",
    "RENAMED": "has a value to restore, under another name",
    "CAST": "has a value to restore, in another type",
    "ADAPTED": "to be changed on the way by an adapt rule",
    "RESET": "to be started anew by the policy",
}
_KINDS = (
    ("only in a", "orange", "gone, or left out"),
    ("only in b", "violet", "new"),
    ("other shape", "red", "same name"),
    ("other type", "amber", "same name and shape"),
    ("moved", "teal", "the same value under another name"),
    ("other value", "blue", "same name, shape and type"),
)
_KIND_OF = dict(zip(("only_a", "only_b", "shape", "dtype", "moved", "value"), _KINDS, strict=True))
_SEVERITIES = ("error", "warn", "note")
_TITLES = {"error": "Refused", "warn": "Warnings", "note": "Notes"}


def content(document: _Document) -> Content:
    """What a page shows of a document.

    Raises:
        KeyError, TypeError, ValueError: it is none that is known, or not as it must be.
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
    about = [KINDS.get(document["kind"], str(document["kind"]))]
    about += [f"{w} {document[w]}" for w in ("step", "epoch") if document[w] is not None]
    about += [f"{name} {value:g}" for name, value in document["metrics"].items()]
    missing = [str(path) for path in document["missing_shards"]]
    verdict = (f"{len(missing)} files are missing: {', '.join(missing)}", "red")
    path = str(document["prefix"])
    verdict_shown = verdict if missing else None
    return Content(path, [", ".join(about)], ("role", "what it is"), roles(), items, verdict_shown)


def _differences(document: _Document) -> Content:
    items = []
    for one in document["differences"]:
        tag, hue, _ = _KIND_OF[one["kind"]]
        sides = [side for side in (one["a"], one["b"]) if side is not None]
        types = " → ".join(dict.fromkeys(map(_signature, sides)))
        name = str(sides[-1]["name"])
        note = f"was {sides[0]['name']}" if sides[0]["name"] != name else ""
        if one.get("largest") is not None:
            note = f"{int(one['differing']):,} elements differ, by {one['largest']:.3g} at most"
            if one.get("relative") is not None:
                note += f" ({one['relative']:.3g} relative)"
        items.append(Item(name, types, max(map(_size, sides)), tag, hue, note))
    equal = int(document["equal"])
    many = f"{len(items):,} value{'s' * (len(items) != 1)} differ, {equal:,} are equal"
    verdict = (many, "amber") if items else (f"no difference: {equal:,} values are equal", "green")
    about = [f"a: {document['a']}", f"b: {document['b']}"]
    return Content("What differs", about, ("difference", "what it means"), _KINDS, items, verdict)


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
    about = ["no checkpoint yet", *(document.get("absent") or ())]
    if document["source"]:
        about = [f"from {document['source']} under policy {document['policy']!r}"]
    about += [str(document["training"])] if document["ok"] and document.get("training") else []
    about += [
        f"{one['name']} was {one['code']} and is {one['checkpoint']}"
        for one in document.get("replaced") or ()
    ]
    about += [f"policies in {document['file']}"] if document["file"] else []
    about += [f"passed over: {one_line(str(why))}" for why in document.get("rejected") or ()]
    sums = _STATUSES if done else tuple((s, h, _WOULD_BE.get(s, what)) for s, h, what in _STATUSES)
    title = "What was restored" if done else "What a restore would do"
    reasons = "\n".join((*_problems(document), *_reasons(document, hues)))
    return Content(title, about, ("status", "what it means"), sums, items, verdict, reasons)


def _problems(document: _Document) -> Iterator[str]:
    if document["problems"]:
        yield "<h2>Problems</h2>"
    for problem in document["problems"]:
        place = f" (line {problem['line']})" if problem["line"] else ""
        yield reason("", "red", f"{problem['message']}{place}", str(problem["hint"]), ())


def _reasons(document: _Document, hues: Mapping[str, str]) -> Iterator[str]:
    """Steps that are more than fine, by why, the gravest first."""
    alike: dict[str, dict[tuple[str, str, str], list[str]]] = {one: {} for one in _SEVERITIES}
    for step in document["steps"]:
        if (found := alike.get(step["severity"])) is not None:
            key = str(step["status"]), str(step["reason"]), str(step["hint"])
            found.setdefault(key, []).append(str(step["name"] or step["source"]))
    for severity, groups in alike.items():
        if groups:
            yield f"<h2>{_TITLES[severity]}</h2>"
        last = {hint: (status, why) for status, why, hint in groups}
        order = list(last)  # those with one hint follow one another, and the last one has it
        for key in sorted(groups, key=lambda key: order.index(key[2])):
            status, why, hint = key
            told = hint if last[hint] == (status, why) else ""
            yield reason(status, hues[status], why, told, groups[key])


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
