"""`tfckpt diff`: compare two checkpoints, or a checkpoint and a model, value by value."""

from __future__ import annotations

import contextlib
import dataclasses
import sys
from typing import TYPE_CHECKING

from tfckpt.cli.arguments.command import UsageError
from tfckpt.cli.arguments.json_document import show_json
from tfckpt.cli.output.progress import print_rejected, progress
from tfckpt.core.name_tree import ordered
from tfckpt.core.text import collapse, printable, signature, size
from tfckpt.tools.comparison import diff
from tfckpt.tools.differences import DifferenceKind

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tfckpt.cli.arguments.command import Arguments
    from tfckpt.stored.inspection.statistics import Distance
    from tfckpt.tools.comparison import ComparedCheckpoints
    from tfckpt.tools.differences import Difference

_LINES = 40
_TITLES = {
    DifferenceKind.ONLY_A: "only in a",
    DifferenceKind.ONLY_B: "only in b",
    DifferenceKind.SHAPE: "different shape",
    DifferenceKind.DTYPE: "different type",
    DifferenceKind.MOVED: "moved",
    DifferenceKind.VALUE: "different value",
}


def run(arguments: Arguments) -> int:
    """Print the differences; returns 1 if there are any."""
    target, values = arguments.text("model"), arguments.switch("values")
    if target is None:
        first, second = arguments.pair("two checkpoints or directories of them, or one and --model")
        found = diff(first, second, values=values, progress=progress)
    else:
        path = arguments.single("a checkpoint to compare with --model")
        found = _with_model(path, target, values=values)
    print_rejected(found.rejected, found.a, found.b)
    if arguments.json:
        show_json(found.to_json())
    else:
        _print(found)
    return 0 if found.same else 1


def _with_model(path: str, target: str, *, values: bool) -> ComparedCheckpoints:
    with contextlib.redirect_stdout(sys.stderr):
        from tfckpt.cli.arguments.load_model import load_objects
        from tfckpt.live.private.tensorflow import Trackable

        objects = load_objects(target)
        if not all(isinstance(one, Trackable | list | tuple | dict) for one in objects.values()):
            raise UsageError(
                f"--model {target} must return the model, or a dict of objects by name"
            )
        return dataclasses.replace(diff(path, objects, values=values, progress=progress), b=target)


def _print(found: ComparedCheckpoints) -> None:
    from tfckpt.cli.output.tables import columns, show
    from tfckpt.core.tables import plain

    print(f"a: {printable(found.a)}\nb: {printable(found.b)}\n")
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
        if kind in (DifferenceKind.VALUE, DifferenceKind.DTYPE) and found.distances is not None:
            _print_distances(ones, found.distances)
            continue
        rows = list(_rows(ones))
        print("\n".join(plain(rows[:_LINES], width=columns())))
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


def _print_distances(ones: list[Difference], distances: Mapping[tuple[str, str], Distance]) -> None:
    from tfckpt.cli.output.tables import show

    rows = []
    for one in ones:
        assert one.a is not None  # noqa: S101 (both sides have the value)
        assert one.b is not None  # noqa: S101
        distance = distances.get((one.a.name, one.b.name))
        cells = ("", "", "") if distance is None else _cells(distance)
        rows.append((_names(one), _types(one), *cells))
    show(("value", "type", "differ", "largest", "relative"), rows, 2, 3, 4)


def _cells(distance: Distance) -> tuple[str, str, str]:
    numbers = (distance.largest, distance.relative)
    largest, relative = ("" if number is None else f"{number:.3g}" for number in numbers)
    return f"{distance.count:,}", largest, relative
