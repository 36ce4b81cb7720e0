"""`tfckpt diff`: compare two checkpoints, or a checkpoint and a model, value by value.

Values are equal if their checksums are. TensorFlow's format has these in its index, so the data of
two such checkpoints is read only for --values. The values of a model are compared only with
--values, because a new model has random ones.
"""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

from tfckpt.cli.arguments.command import UsageError
from tfckpt.cli.arguments.find_checkpoint import find, print_rejected
from tfckpt.cli.arguments.json_document import show_json
from tfckpt.cli.output.progress import progress
from tfckpt.core.name_tree import ordered
from tfckpt.core.text import collapse, printable, signature, size
from tfckpt.errors import UnsupportedCheckpointError
from tfckpt.planning.diff import DifferenceKind, ValueChecksum, diff
from tfckpt.stored.inspection.checksums import checksum, is_distinctive
from tfckpt.stored.inspection.checksums import checksums as checksums_of
from tfckpt.stored.inspection.statistics import difference

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import numpy as np

    from tfckpt.cli.arguments.command import Arguments
    from tfckpt.core.inventory import Entry, Inventory
    from tfckpt.planning.diff import Diff, Difference
    from tfckpt.stored.inspection import statistics

_LINES = 40
_TITLES = {
    DifferenceKind.ONLY_A: "only in a",
    DifferenceKind.ONLY_B: "only in b",
    DifferenceKind.SHAPE: "different shape",
    DifferenceKind.DTYPE: "different type",
    DifferenceKind.MOVED: "moved",
    DifferenceKind.VALUE: "different value",
}


class _Side(NamedTuple):
    """One side of the comparison; checksums are by value name."""

    label: str
    inventory: Inventory
    read: Callable[[Entry], np.ndarray]
    checksums: Mapping[str, ValueChecksum]


def run(arguments: Arguments) -> int:
    """Print the differences; returns 1 if there are any."""
    target = arguments.text("model")
    with contextlib.ExitStack() as stack:
        if target is not None:
            sides = _with_model(
                arguments.single("a checkpoint to compare with --model"), target, arguments, stack
            )
        else:
            first, second = arguments.pair(
                "two checkpoints or directories of them, or one and --model"
            )
            sides = _stored(first, stack), _stored(second, stack)
        a, b = sides
        found = diff(a.inventory, b.inventory, a.checksums, b.checksums)
        apart = _apart(found, a, b) if arguments.switch("values") else None
        if arguments.json:
            show_json(_document(a, b, found, apart))
        else:
            _print(a, b, found, apart)
    return 1 if found.differences else 0


def diff_document(first: str, second: str, *, values: bool) -> dict[str, Any]:
    """The JSON document of a comparison of two checkpoints."""
    with contextlib.ExitStack() as stack:
        a, b = _stored(first, stack), _stored(second, stack)
        found = diff(a.inventory, b.inventory, a.checksums, b.checksums)
        return _document(a, b, found, _apart(found, a, b) if values else None)


def _stored(path: str, stack: contextlib.ExitStack, roots: Any = None, bases: Any = ()) -> _Side:
    found = find(path, roots, bases)
    checkpoint = stack.enter_context(found.checkpoint)
    print_rejected(found)
    entries = checkpoint.inventory.entries
    with progress(checkpoint.prefix) as advance:
        crcs = checksums_of(checkpoint, entries.values(), advance)
    checksums = {
        name: ValueChecksum(crc, is_distinctive(entries[name], crc)) for name, crc in crcs.items()
    }
    return _Side(
        checkpoint.prefix,
        checkpoint.inventory,
        lambda entry: checkpoint.values.read(entry.key),
        checksums,
    )


def _with_model(
    path: str, target: str, arguments: Arguments, stack: contextlib.ExitStack
) -> tuple[_Side, _Side]:
    with contextlib.redirect_stdout(sys.stderr):
        from tfckpt.cli.arguments.load_model import load_objects
        from tfckpt.live.building.build import build_optimizers
        from tfckpt.live.objects.collect import collect
        from tfckpt.live.private.tensorflow import Trackable
        from tfckpt.live.variables.variables import raw

        objects = load_objects(target)
        if not all(isinstance(one, Trackable | list | tuple | dict) for one in objects.values()):
            raise UsageError(
                f"--model {target} must return the model, or a dict of objects by name"
            )
        live = collect(objects)
        stored = _stored(path, stack, live.roots, live.weak_bases)
        entries = stored.inventory.entries
        if build_optimizers(live, {name: entry.of for name, entry in entries.items() if entry.of}):
            live = collect(objects)

    def read(entry: Entry) -> np.ndarray:
        array: np.ndarray = raw(live.variables[entry.name]).numpy()
        return array

    checksums: dict[str, ValueChecksum] = {}
    if arguments.switch("values"):
        for entry in live.inventory.entries.values():
            if entry.shape is not None:
                crc = checksum(read(entry))
                checksums[entry.name] = ValueChecksum(crc, is_distinctive(entry, crc))
    return stored, _Side(target, live.inventory, read, checksums)


_Apart = dict[tuple[str, str], "statistics.Distance"]


def _apart(found: Diff, a: _Side, b: _Side) -> _Apart:
    """The distances of values that differ in content or type, by the names of both sides."""
    distances: _Apart = {}
    pairs = [
        (one.a, one.b)
        for one in found.differences
        if one.kind in (DifferenceKind.VALUE, DifferenceKind.DTYPE)
        and one.a is not None
        and one.b is not None
    ]
    done, total = 0, sum(old.nbytes + new.nbytes for old, new in pairs)
    with progress(f"{a.label}, {b.label}") as advance:
        advance(0, total)
        for old, new in pairs:
            with contextlib.suppress(
                UnsupportedCheckpointError
            ):  # only TensorFlow can read the value
                if (distance := difference(a.read(old), b.read(new))) is not None:
                    distances[old.name, new.name] = distance
            done += old.nbytes + new.nbytes
            advance(done, total)
    return distances


def _print(a: _Side, b: _Side, found: Diff, apart: _Apart | None) -> None:
    from tfckpt.cli.output.tables import plain, show

    print(f"a: {printable(a.label)}\nb: {printable(b.label)}\n")
    groups: dict[DifferenceKind, list[Difference]] = {}
    for change in found.differences:
        groups.setdefault(change.kind, []).append(change)
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
        if kind in (DifferenceKind.VALUE, DifferenceKind.DTYPE) and apart is not None:
            _print_distances(ones, apart)
            continue
        rows = list(_rows(ones))
        print("\n".join(plain(rows[:_LINES])))
        if len(rows) > _LINES:
            print(f"  … and {len(rows) - _LINES:,} more lines (--json shows all)")


def _nbytes(ones: list[Difference]) -> int:
    return sum(one.entry.nbytes for one in ones)


def _rows(ones: list[Difference]) -> Iterator[tuple[str, str]]:
    texts = (f"{_names(one)}\n{_types(one)}" for one in ones)
    for block in collapse(texts):
        name, types = block.text.split("\n")
        times = f"  ×{block.count}" if block.count > 1 else ""
        yield f"  {name}", f"{types}{times}"


def _names(one: Difference) -> str:
    names = [printable(entry.name) for entry in (one.a, one.b) if entry is not None]
    return " → ".join(dict.fromkeys(names))


def _types(one: Difference) -> str:
    """The types and shapes of both sides; an equal shape only once."""
    if one.a and one.b and one.a.shape == one.b.shape and one.a.dtype != one.b.dtype:
        return f"{one.a.dtype} → {signature(one.b)}"
    types = [signature(entry) for entry in (one.a, one.b) if entry is not None]
    return " → ".join(dict.fromkeys(types))


def _print_distances(ones: list[Difference], apart: _Apart) -> None:
    from tfckpt.cli.output.tables import show

    rows = []
    for one in ones:
        assert one.a is not None  # noqa: S101 (both sides have the value)
        assert one.b is not None  # noqa: S101
        distance = apart.get((one.a.name, one.b.name))
        cells = ("", "", "") if distance is None else _cells(distance)
        rows.append((_names(one), _types(one), *cells))
    show(("value", "type", "differ", "largest", "relative"), rows, 2, 3, 4)


def _cells(distance: statistics.Distance) -> tuple[str, str, str]:
    numbers = (distance.largest, distance.relative)
    largest, relative = ("" if number is None else f"{number:.3g}" for number in numbers)
    return f"{distance.count:,}", largest, relative


def _document(a: _Side, b: _Side, found: Diff, apart: _Apart | None) -> dict[str, Any]:
    differences = []
    for one in found.differences:
        item: dict[str, Any] = {"kind": one.kind.value, "a": _value(one.a), "b": _value(one.b)}
        if apart is not None and one.a is not None and one.b is not None:
            distance = apart.get((one.a.name, one.b.name))
            item["differing"] = distance and distance.count
            item["largest"] = distance and distance.largest
            item["relative"] = distance and distance.relative
        differences.append(item)
    return {
        "version": 1,
        "a": a.label,
        "b": b.label,
        "same": not found.differences,
        "equal": found.equal,
        "not_compared": found.not_compared,
        "differences": differences,
    }


def _value(entry: Entry | None) -> dict[str, Any] | None:
    if entry is None:
        return None
    shape = None if entry.shape is None else list(entry.shape)
    return {"name": entry.name, "dtype": entry.dtype, "shape": shape, "nbytes": entry.nbytes}
