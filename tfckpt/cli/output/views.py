"""The views of `tfckpt inspect` that read values: statistics, or the numbers themselves."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from tfckpt.cli.arguments.command import UsageError
from tfckpt.core.name_tree import ordered
from tfckpt.core.selectors import Selector, suggest
from tfckpt.core.text import WIDTH, one_line, printable, signature
from tfckpt.errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np

    from tfckpt.core.inventory import Entry
    from tfckpt.stored.formats.checkpoint import StoredCheckpoint
    from tfckpt.stored.inspection.statistics import Statistics
    from tfckpt.tools.inspection import Inspection

# The largest value that --json prints; larger ones are not for JSON.
MAX_ELEMENTS = 100_000
_MAX_TEXT = 200
_BARS = " ▁▂▃▄▅▆▇█"
_TITLE = ("value", "min", "max", "mean", "std", "zeros", "NaN/inf", "histogram")


def show_statistics(inspection: Inspection) -> bool:
    """Print a table; returns whether every value could be read."""
    from tfckpt.cli.output.tables import show

    rows, errors = [], []
    for name, result in (inspection.statistics or {}).items():
        if isinstance(result, CheckpointError):
            errors.append(str(result))
            rows.append((name, *[""] * 6, "unreadable"))
        else:
            rows.append((name, *_cells(inspection.inventory.entries[name], result)))
    show(_TITLE, rows, *range(1, 7))
    sys.stdout.flush()
    for error in errors:
        print(f"tfckpt: {one_line(error)}", file=sys.stderr)
    return not errors


def _cells(entry: Entry, result: Statistics | None) -> tuple[str, ...]:
    if result is None:
        return (*[""] * 6, entry.dtype)
    moments = (result.least, result.greatest, result.mean, result.std)
    numbers = ("" if value is None else f"{value:.3g}" for value in moments)
    finite = result.count - result.nonfinite
    zeros = f"{result.zeros / finite:.0%}" if finite else ""
    nonfinite = f"{result.nonfinite:,}" if result.nonfinite else ""
    return (*numbers, zeros, nonfinite, bars(result.histogram))


def bars(histogram: tuple[int, ...]) -> str:
    """A histogram in one line; a bin that is not empty is always visible.

    >>> bars((0, 1, 50, 100))
    ' ▁▄█'
    """
    top = max(histogram, default=0)
    steps = len(_BARS) - 1
    return "".join(_BARS[max(1, count * steps // top) if count else 0] for count in histogram)


def show_data(checkpoint: StoredCheckpoint, selector: str) -> None:
    """Print the values that a selector matches, formatted by NumPy."""
    import numpy as np

    for number, (entry, array) in enumerate(_data(checkpoint, selector)):
        print("\n" * (number > 0) + f"{printable(entry.name)}  {signature(entry)}")
        if array is None:
            print("not a tensor, so it has no numbers to show")
        elif array.dtype.hasobject:
            print(np.array2string(array, max_line_width=WIDTH, formatter={"all": _text}))
        else:
            print(np.array2string(array, max_line_width=WIDTH))


def _text(content: Any) -> str:
    shown = repr(content[:_MAX_TEXT])
    return shown if len(content) <= _MAX_TEXT else f"{shown}… ({len(content):,} bytes)"


def data_document(checkpoint: StoredCheckpoint, selector: str) -> dict[str, Any]:
    """Name → nested lists of elements; strings as escaped text; null if not a tensor."""
    document: dict[str, Any] = {}
    for entry, array in _data(checkpoint, selector):
        if array is None:
            document[entry.name] = None
            continue
        if array.size > MAX_ELEMENTS:
            raise UsageError(
                f"{entry.name} has {array.size:,} elements; --json prints at most "
                f"{MAX_ELEMENTS:,}; `tfckpt convert PATH FILE.npz` writes them for NumPy"
            )
        document[entry.name] = _elements(array)
    return document


def _elements(array: np.ndarray) -> Any:
    if array.dtype.fields:
        array = array[next(iter(array.dtype.fields))]
    if array.dtype.hasobject:
        return _nested(array.tolist(), lambda content: content.decode(errors="backslashreplace"))
    if array.dtype.kind == "c":
        return _nested(array.tolist(), lambda number: [number.real, number.imag])
    return array.tolist() if array.dtype.kind in "iufb" else array.astype("float64").tolist()


def _nested(value: Any, change: Any) -> Any:
    if isinstance(value, list):
        return [_nested(inner, change) for inner in value]
    return change(value)


def _data(checkpoint: StoredCheckpoint, selector: str) -> Iterator[tuple[Entry, np.ndarray | None]]:
    """The values that a selector matches; None for one that is not a tensor."""
    try:
        pattern = Selector(selector)
    except ValueError as error:
        raise UsageError(f"--name {selector!r}: {error}") from None
    every = checkpoint.inventory.entries.values()
    entries = ordered(entry for entry in every if pattern.matches(entry.name))
    if not entries:
        close = suggest(selector, [entry.name for entry in every])
        hint = f"; similar names: {', '.join(close)}" if close else ""
        raise UsageError(f"--name {selector!r} matches no value{hint}")
    for entry in entries:
        yield entry, None if entry.shape is None else checkpoint.values.read(entry.key)
