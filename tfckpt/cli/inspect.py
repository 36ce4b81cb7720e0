"""What `tfckpt inspect` and `tfckpt diff` print of values; without --model, not by TensorFlow."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import sys
from typing import TYPE_CHECKING, Any

from tfckpt.cli.terminal import (
    UsageError,
    columns,
    is_terminal,
    print_rejected,
    progress,
    show,
    show_json,
)
from tfckpt.core.gc_pause import gc_paused
from tfckpt.core.name_tree import ordered, rows, tree
from tfckpt.core.tables import plain, tree_line
from tfckpt.core.text import WIDTH, collapse, one_line, printable, signature, size
from tfckpt.errors import CheckpointError
from tfckpt.stored.formats.checkpoint import KINDS
from tfckpt.tools.find_checkpoint import find
from tfckpt.tools.inspection import inspect_open
from tfckpt.tools.result_texts import both_names, both_types, distance_of, how_far, moments

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterator, Mapping

    import numpy as np

    from tfckpt.core.distance import Distance
    from tfckpt.core.inventory import Entry, Restored
    from tfckpt.stored.formats.checkpoint import StoredCheckpoint
    from tfckpt.tools.comparison import ComparedCheckpoints, Difference
    from tfckpt.tools.inspection import Inspection
    from tfckpt.tools.statistics import Statistics

_LINES = 40
_TITLES = {
    "only_a": "only in a",
    "only_b": "only in b",
    "shape": "different shape",
    "dtype": "different type",
    "moved": "moved",
    "value": "different value",
}
_INDENT = "  "
# The largest value that --json prints; larger ones are not for JSON.
MAX_ELEMENTS = 100_000
_MAX_TEXT = 200
_BARS = " ▁▂▃▄▅▆▇█"
_TITLE = ("value", "min", "max", "mean", "std", "zeros", "NaN/inf", "histogram")


def inspect(arguments: Namespace) -> int:
    """Show a checkpoint; returns 1 if part of it, or a newer one beside it, is unreadable."""
    found = find(arguments.PATH)
    with found.checkpoint as checkpoint:
        shown = inspect_open(found, values=arguments.values, progress=progress)
        if not arguments.json:
            _print(arguments, shown, checkpoint)
        elif arguments.name is None:
            show_json(shown.to_json())
        else:
            show_json(shown.to_json() | {"data": data_document(checkpoint, arguments.name)})
    read = not any(isinstance(one, CheckpointError) for one in (shown.statistics or {}).values())
    return 0 if read and not shown.rejected and not shown.missing_files else 1


def _print(arguments: Namespace, shown: Inspection, checkpoint: StoredCheckpoint) -> None:
    """Print the selected view."""
    if arguments.name is not None:
        show_data(checkpoint, arguments.name)
        return
    _head(shown)
    if arguments.values:
        show_statistics(shown)
    elif arguments.keys:
        entries = ordered(checkpoint.inventory.entries.values())
        show(("name", "key"), [(entry.name, entry.key) for entry in entries])
    else:
        _tree(shown)
    sys.stdout.flush()
    for file, count in checkpoint.values.missing_files.items():
        of = f"{count:,} of the {len(checkpoint.values.sizes):,} values"
        print(
            f"tfckpt: {printable(file)}: the file is missing; it contains {of} of the checkpoint",
            file=sys.stderr,
        )


def _head(shown: Inspection) -> None:
    record = shown.record
    for candidate in shown.candidates:
        reason = shown.rejected.get(candidate.prefix)
        below = "shown below" if candidate.prefix == shown.path else ""
        row = candidate.prefix, candidate.state, reason or below
        print("  ".join(map(one_line, row)).rstrip())
    if shown.candidates:
        print()
    metadata = [KINDS[shown.kind]]
    if record is not None:
        for word, value in (("step", record.step), ("epoch", record.epoch)):
            if value is not None:
                metadata.append(f"{word} {value}")
        metadata.extend(f"{printable(name)} {value:g}" for name, value in record.metrics.items())
    path, text = f"{printable(shown.path)}:", ", ".join(metadata)
    fits = len(f"{path} {text}") <= WIDTH
    print(*([f"{path} {text}"] if fits else [path, *_filled(metadata)]), sep="\n")
    for key, value in record.metadata.items() if record is not None else ():
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        print(f"{_INDENT}{printable(key)}: {printable(text)}")
    for restored in record.lineage if record is not None else ():
        print(*_lineage(restored), sep="\n")
    print()


def _filled(items: list[str]) -> Iterator[str]:
    """Lines filled with items, separated by commas; no item is broken."""
    line = _INDENT + items[0]
    for item in items[1:]:
        if len(f"{line}, {item},") <= WIDTH:
            line += f", {item}"
        else:
            yield f"{line},"
            line = _INDENT + item
    yield line


def _lineage(restored: Restored) -> Iterator[str]:
    """The sources of one restore, and the counts of its statuses."""
    for source in restored.sources:
        yield f"{_INDENT}from {printable(source.path)} (sha256 {printable(source.sha256[:12])}…)"
        digest = printable(source.policy_sha256[:12])
        yield f"{_INDENT * 2}by policy {source.policy!r} (sha256 {digest}…)"
    counts = ", ".join(f"{printable(word)} {count:,}" for word, count in restored.counts.items())
    yield f"{_INDENT * 2}{counts}"


@gc_paused()
def _tree(shown: Inspection) -> None:
    root = tree(shown.inventory.entries.values())
    terminal = is_terminal()
    body = [tree_line(row, indented=terminal) for row in rows(root, fold=terminal)]
    show(("name", "role", "type", "size"), body, 3)
    tops = root.children.values()
    sums = [(top.name, f"{top.count:,}", size(top.nbytes)) for top in tops]
    print()
    show(("total", "values", "size"), [*sums, ("", f"{root.count:,}", size(root.nbytes))], 2)


def show_statistics(inspection: Inspection) -> bool:
    """Print a table; returns whether every value could be read."""
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
    finite = result.count - result.nonfinite
    zeros = f"{result.zeros / finite:.0%}" if finite else ""
    nonfinite = f"{result.nonfinite:,}" if result.nonfinite else ""
    return (*moments(result), zeros, nonfinite, bars(result.histogram))


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
                f"{MAX_ELEMENTS:,}; `tfckpt export PATH FILE.npz` writes them for NumPy"
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
    from tfckpt.core.selectors import Selector  # imports regular expressions

    try:
        pattern = Selector(selector)
    except ValueError as error:
        raise UsageError(f"--name {selector!r}: {error}") from None
    every = checkpoint.inventory.entries.values()
    entries = ordered(entry for entry in every if pattern.matches(entry.name))
    if not entries:
        from tfckpt.core.similar import near_selectors, question

        hint = question(near_selectors(selector, [entry.name for entry in every]))
        raise UsageError(f"--name {selector!r} matches no value{hint and f'; {hint}'}")
    for entry in entries:
        yield entry, None if entry.shape is None else checkpoint.values.read(entry.key)


def diff(arguments: Namespace) -> int:
    """Print the differences; returns 1 if there are any."""
    from tfckpt.tools.comparison import diff as compare

    a, b, values = arguments.A, arguments.B, arguments.values
    if (b is None) == (arguments.model is None):
        raise UsageError("expected two checkpoints or directories of them, or one and --model")
    if b is not None:
        found = compare(a, b, values=values, progress=progress)
    else:
        found = _with_model(a, arguments.model, values=values)
    print_rejected(found.rejected, found.a, found.b)
    if arguments.json:
        show_json(found.to_json())
    else:
        _print_differences(found)
    return 0 if found.same else 1


def _with_model(path: str, target: str, *, values: bool) -> ComparedCheckpoints:
    with contextlib.redirect_stdout(sys.stderr):
        from tfckpt.cli.plan import load_objects
        from tfckpt.live.private.tensorflow import Trackable
        from tfckpt.tools.comparison import diff as compare

        objects = load_objects(target)
        if not all(isinstance(one, Trackable | list | tuple | dict) for one in objects.values()):
            raise UsageError(
                f"--model {target} must return the model, or a dict of objects by name"
            )
        return dataclasses.replace(
            compare(path, objects, values=values, progress=progress), b=target
        )


def _print_differences(found: ComparedCheckpoints) -> None:
    print(f"a: {printable(found.a)}\nb: {printable(found.b)}\n")
    groups: dict[str, list[Difference]] = {}
    for change in found.differences:
        groups.setdefault(change.kind.value, []).append(change)
    names = [entry.name for entry in ordered(change.entry for change in found.differences)]
    positions = {name: index for index, name in enumerate(names)}
    for group in groups.values():
        group.sort(key=lambda difference: positions[difference.entry.name])
    sums = [(_TITLES[kind], f"{len(ones):,}", size(_nbytes(ones))) for kind, ones in groups.items()]
    same = (("equal", found.equal), ("not compared", found.not_compared))
    sums.extend((title, f"{count:,}", "") for title, count in same if count)
    show(("", "values", "size"), sums, 1, 2)
    for kind, ones in groups.items():
        print(f"\n{_TITLES[kind]}")
        if kind in ("value", "dtype") and found.distances is not None:
            _print_distances(ones, found.distances)
            continue
        rows = list(_collapsed(ones))
        print("\n".join(plain(rows[:_LINES], width=columns())))
        if len(rows) > _LINES:
            print(f"  … and {len(rows) - _LINES:,} more lines (--json shows all)")


def _nbytes(ones: list[Difference]) -> int:
    return sum(one.entry.nbytes for one in ones)


def _collapsed(ones: list[Difference]) -> Iterator[tuple[str, str]]:
    texts = (f"{both_names(one)}\n{both_types(one)}" for one in ones)
    for block in collapse(texts):
        name, types = block.text.split("\n")
        times = f"  ×{block.count}" if block.count > 1 else ""
        yield f"  {name}", f"{types}{times}"


def _print_distances(ones: list[Difference], distances: Mapping[tuple[str, str], Distance]) -> None:
    rows = [
        (both_names(one), both_types(one), *how_far(distance_of(one, distances))) for one in ones
    ]
    show(("value", "type", "differ", "largest", "relative"), rows, 2, 3, 4)
