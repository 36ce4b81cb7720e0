"""What the tools return, as rows and as text: for the terminal, `print` and a notebook."""

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

    from tfckpt.core.distance import Distance
    from tfckpt.stored.commits.discovery import CheckpointInfo
    from tfckpt.tools.comparison import ComparedCheckpoints, Difference
    from tfckpt.tools.inspection import Inspection
    from tfckpt.tools.statistics import Statistics

_UNITS = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))


def listing_text(found: Sequence[CheckpointInfo]) -> str:
    """The checkpoints of a directory, and what retention rules decide about them."""
    metrics = list(dict.fromkeys(name for one in found for name in one.metrics))
    title, lines = listing_rows(found, metrics)
    return "\n".join(shortened(title, lines, 1, 3, *range(5, 5 + len(metrics))))


def listing_rows(
    found: Sequence[CheckpointInfo], metrics: Sequence[str], now: float | None = None
) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """The title and a row for each; with ``now``, its age in place of the time of the save."""
    when = "saved (UTC)" if now is None else "age"
    rows = [
        (
            os.path.split(one.prefix)[1],
            "" if one.record.step is None else f"{one.record.step:,}",
            _saved(one.time) if now is None else age(now - one.time),
            size(one.nbytes),
            one.state,
            *(metric(one, name) for name in metrics),
            ", ".join(_notes(one, metrics)),
        )
        for one in found
    ]
    return ("checkpoint", "step", when, "size", "state", *metrics, "notes"), rows


def metric(one: CheckpointInfo, name: str) -> str:
    return f"{one.metrics[name]:g}" if name in one.metrics else ""


def _saved(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, timezone.utc):%Y-%m-%d %H:%M:%S}"


def age(seconds: float) -> str:
    """A time span in the largest unit of which it has at least two.

    >>> age(1), age(3600), age(90000), age(3e6)
    ('1 s', '60 min', '25 h', '34 d')
    """
    for length, unit in _UNITS:
        if seconds >= 2 * length:
            return f"{int(seconds // length)} {unit}"
    return f"{max(int(seconds), 0)} s"


def _notes(one: CheckpointInfo, shown: Sequence[str]) -> Iterator[str]:
    """What there is to say, and the metrics that have no column."""
    if one.problem:
        yield one_line(one.problem.replace(f"{os.path.split(one.prefix)[0]}/", ""))
    if one.best_by:
        yield f"the best by {one.best_by}"
    if one.shared[0]:
        yield f"shares {size(one.shared[0])} of {os.path.split(one.shared[1])[1]}"
    if one.delete:
        yield "no rule keeps it: would be deleted"
    else:
        yield from one.kept or ()
    yield from (f"{name} {metric(one, name)}" for name in one.metrics if name not in shown)
    if one.record.finite is False:
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
    return (*moments(one), f"{one.nonfinite:,}" if one and one.nonfinite else "")


def moments(one: Statistics | None) -> tuple[str, ...]:
    """The least and the greatest element, the mean and the standard deviation."""
    if one is None:
        return ("",) * 4
    numbers = (one.least, one.greatest, one.mean, one.std)
    return tuple("" if number is None else f"{number:.3g}" for number in numbers)


def comparison_text(found: ComparedCheckpoints) -> str:
    """What differs between two checkpoints; the largest relative change first, if known."""
    counts = [(len(found.differences), "different"), (found.equal, "equal")]
    counts += [(found.not_compared, "not compared")] * bool(found.not_compared)
    head = ", ".join(f"{count:,} {word}" for count, word in counts)
    about = [head, f"a: {printable(found.a)}", f"b: {printable(found.b)}"]
    if found.same:
        return "\n".join(about)
    distances = found.distances or {}
    pairs = [(one, distance_of(one, distances)) for one in found.differences]
    pairs.sort(key=lambda pair: -((pair[1] and pair[1].relative) or 0.0))
    lines = [_difference(one, distance) for one, distance in pairs]
    title = ("value", "difference", "type", "differ", "largest", "relative")
    return "\n".join([*about, "", *shortened(title, lines, 3, 4, 5)])


def distance_of(one: Difference, distances: Mapping[tuple[str, str], Distance]) -> Distance | None:
    """How far apart both sides are; None where one has no such value, or no numbers were read."""
    return distances.get((one.a.name, one.b.name)) if one.a and one.b else None


def _difference(one: Difference, distance: Distance | None) -> tuple[str, ...]:
    return both_names(one), one.kind.value.replace("_", " "), both_types(one), *how_far(distance)


def both_names(one: Difference) -> str:
    """Both names, where they differ."""
    both = [printable(entry.name) for entry in (one.a, one.b) if entry is not None]
    return " → ".join(dict.fromkeys(both))


def both_types(one: Difference) -> str:
    """The types and shapes of both sides; an equal shape only once."""
    if one.a and one.b and one.a.shape == one.b.shape and one.a.dtype != one.b.dtype:
        return f"{one.a.dtype} → {signature(one.b)}"
    both = [signature(entry) for entry in (one.a, one.b) if entry is not None]
    return " → ".join(dict.fromkeys(both))


def how_far(distance: Distance | None) -> tuple[str, str, str]:
    """How many elements differ, by how much at most, and relative to the largest."""
    if distance is None:
        return ("", "", "")
    numbers = (distance.largest, distance.relative)
    largest, relative = ("" if number is None else f"{number:.3g}" for number in numbers)
    return f"{distance.count:,}", largest, relative
