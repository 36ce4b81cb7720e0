"""What the tools return, as text: what `print` and a notebook show of it."""

from __future__ import annotations

import os
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from tfckpt.core.tables import shortened, value_tree
from tfckpt.core.text import one_line, printable, signature, size
from tfckpt.errors import CheckpointError
from tfckpt.stored.formats.checkpoint import KINDS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tfckpt.stored.inspection.listing import ListedCheckpoint
    from tfckpt.stored.inspection.statistics import Distance, Statistics
    from tfckpt.tools.comparison import ComparedCheckpoints
    from tfckpt.tools.differences import Difference
    from tfckpt.tools.inspection import Inspection


def listing_text(found: Sequence[ListedCheckpoint]) -> str:
    """The checkpoints of a directory, and what retention rules decide about them."""
    metrics = list(dict.fromkeys(name for one in found if one.head for name in one.head.metrics))
    title = ("checkpoint", "step", "saved (UTC)", "size", "state", *metrics, "notes")
    lines = [_listed(one, metrics) for one in found]
    return "\n".join(shortened(title, lines, 1, 3, *range(5, 5 + len(metrics))))


def _listed(one: ListedCheckpoint, metrics: Sequence[str]) -> tuple[str, ...]:
    head = one.head
    saved = datetime.fromtimestamp(one.time, timezone.utc)
    numbers = (head.metrics.get(name) if head else None for name in metrics)
    return (
        os.path.split(one.prefix)[1],
        "" if head is None or head.step is None else f"{head.step:,}",
        f"{saved:%Y-%m-%d %H:%M:%S}",
        size(one.nbytes),
        one.state,
        *("" if number is None else f"{number:g}" for number in numbers),
        ", ".join(_notes(one)),
    )


def _notes(one: ListedCheckpoint) -> Iterator[str]:
    if one.problem:
        yield one_line(one.problem)
    if one.best_by:
        yield f"the best by {one.best_by}"
    if one.delete:
        yield "no rule keeps it: would be deleted"
    yield from one.kept or ()
    if one.head is not None and one.head.finite is False:
        yield "has NaN or infinite values"


def inspection_text(found: Inspection) -> str:
    """The values of a checkpoint, with statistics where they were computed."""
    return "\n".join(_inspection(found))


def _inspection(found: Inspection) -> Iterator[str]:
    record, about = found.record, [KINDS[found.kind]]
    if record is not None:
        counted = (("step", record.step), ("epoch", record.epoch))
        about += [f"{word} {value}" for word, value in counted if value is not None]
        about += [f"{name} {value:g}" for name, value in record.metrics.items()]
    yield printable(f"{found.path}: {', '.join(about)}")
    for path, reason in found.rejected.items():
        yield f"passed over: {printable(path)}: {one_line(reason)}"
    for file in found.missing_files:
        yield f"{printable(file)}: the file is missing"
    yield ""
    if found.statistics is None:
        yield from value_tree(found.inventory.entries.values())
        return
    title = ("value", "type", "min", "max", "mean", "std", "NaN/inf")
    lines = [
        (name, signature(found.inventory.entries[name]), *_measured(one))
        for name, one in found.statistics.items()
    ]
    yield from shortened(title, lines, 2, 3, 4, 5, 6)


def _measured(one: Statistics | CheckpointError | None) -> tuple[str, ...]:
    if isinstance(one, CheckpointError):
        return (one_line(str(one)), "", "", "", "")
    if one is None:
        return ("",) * 5
    moments = (one.least, one.greatest, one.mean, one.std)
    numbers = ("" if number is None else f"{number:.3g}" for number in moments)
    return (*numbers, f"{one.nonfinite:,}" if one.nonfinite else "")


def comparison_text(found: ComparedCheckpoints) -> str:
    """What differs between two checkpoints; the largest relative change first, if known."""
    counts = [(len(found.differences), "different"), (found.equal, "equal")]
    counts += [(found.not_compared, "not compared")] * bool(found.not_compared)
    head = ", ".join(f"{count:,} {word}" for count, word in counts)
    about = [head, f"a: {printable(found.a)}", f"b: {printable(found.b)}"]
    if found.same:
        return "\n".join(about)
    distances = found.distances or {}
    pairs = [(one, _distance(one, distances)) for one in found.differences]
    pairs.sort(key=lambda pair: -((pair[1] and pair[1].relative) or 0.0))
    lines = [_difference(one, distance) for one, distance in pairs]
    title = ("value", "difference", "type", "differ", "largest", "relative")
    return "\n".join([*about, "", *shortened(title, lines, 3, 4, 5)])


def _distance(one: Difference, distances: Mapping[tuple[str, str], Distance]) -> Distance | None:
    return distances.get((one.a.name, one.b.name)) if one.a and one.b else None


def _difference(one: Difference, distance: Distance | None) -> tuple[str, ...]:
    sides = [entry for entry in (one.a, one.b) if entry is not None]
    names = " → ".join(dict.fromkeys(entry.name for entry in sides))
    types = " → ".join(dict.fromkeys(map(signature, sides)))
    kind = one.kind.value.replace("_", " ")
    if distance is None:
        return (names, kind, types, "", "", "")
    measured = (distance.largest, distance.relative)
    numbers = ("" if number is None else f"{number:.3g}" for number in measured)
    return (names, kind, types, f"{distance.count:,}", *numbers)
