"""The pages of a checkpoint, of a difference, and of a plan."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfckpt.core.name_tree import ordered
from tfckpt.core.text import one_line, signature, size
from tfckpt.errors import CheckpointError
from tfckpt.pages.pictures import bars
from tfckpt.pages.shell import counted, facts, number, render, text, title_of
from tfckpt.pages.table import Cell, table, tag
from tfckpt.planning import Severity
from tfckpt.stored.formats.checkpoint import KINDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from tfckpt.core.inventory import Entry, Restored
    from tfckpt.planning import Plan
    from tfckpt.tools.comparison import ComparedCheckpoints
    from tfckpt.tools.inspection import Inspection
    from tfckpt.tools.statistics import Statistics

_ROLES = {
    **dict.fromkeys(("slot", "iterations", "hyperparameter"), "amber"),
    "weight": "green",
    "seed": "violet",
    "metric": "teal",
    "state": "blue",
}
_KINDS = {
    **dict.fromkeys(("only a", "only b"), "orange"),
    "shape": "red",
    "dtype": "violet",
    "moved": "teal",
    "value": "blue",
}
_HUES = {
    Severity.OK: "green",
    Severity.NOTE: "blue",
    Severity.WARN: "orange",
    Severity.ERROR: "red",
}


def checkpoint_page(found: Inspection) -> str:
    """The page of a checkpoint, from what :func:`tfckpt.inspect` says of it."""
    return render("Checkpoint", title_of(found.path), found.path, _checkpoint(found))


def difference_page(found: ComparedCheckpoints) -> str:
    """The page of a difference, from what :func:`tfckpt.diff` says."""
    title = f"{title_of(found.a)} → {title_of(found.b)}"
    return render("Difference", title, f"{found.a} → {found.b}", _difference(found))


def plan_page(plan: Plan) -> str:
    """The page of a plan, as :func:`tfckpt.plan` returns it."""
    return render("Plan", title_of(plan.source), plan.source, _plan(plan))


def _checkpoint(found: Inspection) -> Iterator[str]:
    record, entries = found.record, ordered(found.inventory.entries.values())
    for file in found.missing_files:
        yield f'<p class="verdict red">{text(file)}: the file is missing</p>'
    pairs = [("format", KINDS[found.kind]), ("values", f"{len(entries):,}")]
    pairs.append(("size", size(sum(entry.nbytes for entry in entries))))
    if record is not None:
        counts = {"step": record.step, "epoch": record.epoch}
        pairs.append(("saved", record.created))
        pairs += [(word, f"{count:,}") for word, count in counts.items() if count is not None]
        pairs += [(name, number(value, 6)) for name, value in record.metrics.items()]
        pairs += [(name, str(value)) for name, value in record.metadata.items()]
        pairs += record.versions.items()
    yield facts(pairs)
    yield from _lineage(record.lineage if record else ())
    yield from _picture("Size by layer", _by_layer((e, e.nbytes) for e in entries), _size)
    yield "<h2>Values</h2>"
    measured = found.statistics or {}
    rows = [
        (
            entry.name,
            [
                tag(entry.role.value, _ROLES.get(entry.role.value, "grey")),
                Cell(text(signature(entry))),
                Cell(size(entry.nbytes), entry.nbytes),
                *_measured(measured.get(entry.name)),
            ],
        )
        for entry in entries
    ]
    moments = dict.fromkeys(("min", "max", "mean", "std", "NaN/inf"), True)
    heads = {"role": False, "type": False, "size": True, **moments}
    yield from table(rows, heads, "values")


def _measured(found: Statistics | CheckpointError | None) -> list[Cell]:
    if isinstance(found, CheckpointError):
        return [Cell(text(one_line(str(found)))), *[Cell("")] * 4]
    if found is None:
        return [Cell("")] * 5
    moments = (found.least, found.greatest, found.mean, found.std)
    bad = Cell(f"{found.nonfinite:,}" if found.nonfinite else "", found.nonfinite)
    return [*(Cell(number(value), value) for value in moments), bad]


def _lineage(restores: Sequence[Restored]) -> Iterator[str]:
    """Which checkpoints the values come from, by which policies."""
    if not restores:
        return
    yield '<h2>Where the values come from</h2><ol class="list">'
    for restored in restores:
        for source in restored.sources:
            yield (
                f"<li><code>{text(source.path)}</code> by policy <code>"
                f"{text(source.policy)}</code> <small>(SHA-256 of the checkpoint "
                f"{text(source.sha256[:12])}…, of the policy "
                f"{text(source.policy_sha256[:12])}…)</small></li>"
            )
        counts = ", ".join(f"{n:,} {word}" for word, n in restored.counts.items())
        yield f'<li class="quiet">{text(counts)}</li>' if counts else ""
    yield "</ol>"


def _difference(found: ComparedCheckpoints) -> Iterator[str]:
    hue, words = ("green", "nothing differs")
    if not found.same:
        differ = "differs" if len(found.differences) == 1 else "differ"
        hue, words = "orange", f"{counted(len(found.differences), 'value')} {differ}"
    yield f'<p class="verdict {hue}">{words}</p>'
    compared = f"{found.not_compared:,}" if found.not_compared else ""
    yield facts(
        [("a", found.a), ("b", found.b), ("equal", f"{found.equal:,}"), ("not compared", compared)]
    )
    if found.same:
        return
    distances, rows = found.distances or {}, []
    changed: list[tuple[Entry, float]] = []
    for one in found.differences:
        sides = [entry for entry in (one.a, one.b) if entry is not None]
        measured = distances.get((one.a.name, one.b.name)) if one.a and one.b else None
        count = measured.count if measured else None
        moved = (measured.largest, measured.relative) if measured else (None, None)
        changed.append((one.entry, (moved[1] or 0.0) if distances else 1.0))
        state = one.kind.value.replace("_", " ")
        cells = [
            tag(state, _KINDS[state]),
            Cell(text(" → ".join(dict.fromkeys(map(signature, sides))))),
            Cell("" if count is None else f"{count:,}", count),
            *(Cell(number(value), value) for value in moved),
        ]
        rows.append((" → ".join(dict.fromkeys(e.name for e in sides)), cells))
    if distances:
        largest: dict[str, float] = {}
        for entry, value in changed:
            largest[_layer(entry)] = max(largest.get(_layer(entry), 0.0), value)
        yield from _picture("Largest relative change by layer", largest, number)
    else:
        yield from _picture("Different values by layer", _by_layer(changed), "{:,.0f}".format)
    yield "<h2>Values that differ</h2>"
    measures = dict.fromkeys(("elements that differ", "largest", "relative"), True)
    heads = {"difference": False, "type": False, **measures}
    yield from table(rows, heads, "values")


def _plan(plan: Plan) -> Iterator[str]:
    hue, words = ("green", "may be restored") if plan.ok else ("red", "refused")
    yield f'<p class="verdict {hue}">{words}</p>'
    for problem in plan.problems:
        yield f"<p>{text(problem.message)}</p>"
    counts = [(status.value, f"{count:,}") for status, count in plan.counts.items()]
    yield facts([("policy", plan.policy), *counts, ("chosen", plan.chosen)])
    if plan.suggestion is not None:
        yield f'<h2>Suggestion</h2><pre class="quiet">{_lines(str(plan.suggestion))}</pre>'
    assigned = ((step.entry, step.entry.nbytes) for step in plan.assignments)
    yield from _picture("What is restored, by layer", _by_layer(assigned), _size)
    yield "<h2>Values</h2>"
    rows = [
        (
            step.name or step.source,
            [
                tag(step.status.value, _HUES[step.severity]),
                Cell(text(step.source if step.source != step.name else "")),
                Cell(text(signature(step.entry))),
                Cell(text(one_line("; ".join(filter(None, (step.reason, step.hint)))))),
            ],
        )
        for step in plan.steps
    ]
    heads = dict.fromkeys(("status", "from", "type", "why"), False)
    yield from table(rows, heads, "values")


def _lines(several: str) -> str:
    """Text of several lines, escaped for HTML."""
    return "\n".join(map(text, several.splitlines()))


def _size(nbytes: float) -> str:
    return size(round(nbytes))


def _layer(entry: Entry) -> str:
    return (entry.of or entry.name).rpartition("/")[0] or entry.name


def _by_layer(values: Iterable[tuple[Entry, float]]) -> dict[str, float]:
    sums: dict[str, float] = {}
    for entry, value in values:
        layer = _layer(entry)
        sums[layer] = sums.get(layer, 0.0) + value
    return sums


def _picture(title: str, shares: dict[str, float], unit: Callable[[float], str]) -> Iterator[str]:
    if len(shares) > 1 and (drawn := bars(shares, unit)):
        yield f"<h2>{title}</h2>"
        yield drawn
