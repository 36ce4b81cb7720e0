"""Formats names, shapes and sizes for messages and reports, and makes names unique.

Names come from files that other people wrote and end up in terminals and CI logs, so characters
that do not print are escaped: an ESC in a layer name cannot change colors or move the
cursor. Repeated blocks are shown once, ``model/block_{0…11}/kernel``. A second value with a name
that is taken ends with ``~2``, which no layer of Keras can.
"""

from __future__ import annotations

import dataclasses
import functools
import html
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from tfckpt.core.inventory import Entry, Shape

WIDTH = 80
FOLD = 5  # longer lists are cut
_Box = tuple[tuple[int, int], ...]
_UNITS = ("KiB", "MiB", "GiB", "TiB")
_DIGITS = re.compile(r"([0-9]+)")
_REPEATED = re.compile(r"~\d+$")


def printable(text: str) -> str:
    r"""The text with all characters escaped that do not print, including newlines and tabs.

    >>> print(printable("model/\x1b[31mred\n"))
    model/\x1b[31mred\n
    """
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode("ascii")
        for char in text
    )


def all_printable(texts: Sequence[str]) -> Sequence[str]:
    """Each text as :func:`printable` returns it."""
    return texts if "".join(texts).isprintable() else list(map(printable, texts))


def one_line(text: str) -> str:
    r"""A message and its hint joined into one line; other unprintable characters are escaped.

    >>> one_line("ckpt-1.index: ends too soon\n  Copy it again.")
    'ckpt-1.index: ends too soon; Copy it again.'
    """
    return printable("; ".join(line.strip() for line in text.split("\n")))


def natural(name: str) -> tuple[Any, ...]:
    """Sort key that compares numbers in names by value.

    >>> sorted(["block_10", "block_9", "block", "block_"], key=natural)
    ['block', 'block_', 'block_9', 'block_10']
    """
    parts: list[Any] = _DIGITS.split(name)
    parts[1::2] = [(len(digits.lstrip("0")), digits.lstrip("0")) for digits in parts[1::2]]
    return tuple(parts), name


@functools.lru_cache(1024)  # called for each value, most of which are as large as others
def size(nbytes: int) -> str:
    """A number of bytes with a binary unit.

    >>> size(0), size(1023), size(1536), size(5 * 2**30)
    ('0 B', '1023 B', '1.5 KiB', '5.0 GiB')
    """
    if nbytes < 1024:
        return f"{nbytes} B"
    amount, power = nbytes / 1024, 0
    while amount >= 1023.95 and power < len(_UNITS) - 1:
        amount, power = amount / 1024, power + 1
    return f"{amount:.1f} {_UNITS[power]}"


def listed(names: Sequence[str], most: int = FOLD) -> str:
    """The first ``most`` names, and how many more there are.

    >>> listed(["a", "b"]), listed(list("abcde"), 2)
    ('a, b', 'a, b and 3 more')
    """
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def folded(lines: Sequence[str], where: str = "") -> list[str]:
    """The first lines, and how many more there are and ``where``.

    >>> folded(list("abcdefgh"), ": see .report")[-2:]
    ['e', '… and 3 more: see .report']
    """
    more = [f"… and {len(lines) - FOLD:,} more{where}"] if len(lines) > FOLD else []
    return [*lines[:FOLD], *more]


def no_space(needed: int, free: int) -> str:
    """The message for a disk without enough free space for a save.

    >>> no_space(3 * 2**20, 1536)
    'a save needs at least 3.0 MiB, but only 1.5 KiB are free'
    """
    if needed <= free:  # `needed` does not include index and record
        return f"a save needs more than the {size(free)} that are free"
    return f"a save needs at least {size(needed)}, but only {size(free)} are free"


def wrap(text: str, indent: str) -> list[str]:
    """Lines of at most 80 columns; words are not broken, because they may be names."""
    import textwrap

    return textwrap.wrap(
        text,
        WIDTH,
        initial_indent=indent,
        subsequent_indent=indent + "  ",
        break_long_words=False,
        break_on_hyphens=False,
    )


def signature(entry: Entry) -> str:
    """The dtype and shape of a value, ``float32 (3, 3)``."""
    if entry.shape is None:
        return "object"
    return _signature(entry.dtype, entry.shape)


@functools.lru_cache  # the values of a model have few dtypes and shapes
def _signature(dtype: str, shape: Shape) -> str:
    return f"{dtype} ({', '.join(map(str, shape))})"


@dataclasses.dataclass(frozen=True, slots=True)
class NameRange:
    """Names that differ only in their indices; ``first`` is the name with the lowest."""

    text: str
    count: int
    first: str


def collapse(names: Iterable[str]) -> list[NameRange]:
    """Names that differ only in contiguous indices, collapsed, in order of first appearance.

    Indices that change together, as on both sides of a rename, count as one.

    >>> [block.text for block in collapse(f"b/{i}/{j}/k" for i in range(3) for j in range(2))]
    ['b/{0…2}/{0…1}/k']
    >>> [block.text for block in collapse(f"blk{i} <- block_{i}" for i in (0, 1, 2, 5))]
    ['blk{0…2} <- block_{0…2}', 'blk5 <- block_5']
    """
    families: dict[tuple[str, ...], list[tuple[int, ...]]] = {}
    for name in names:
        texts, numbers = _split(name)
        families.setdefault(texts, []).append(numbers)
    return [block for texts, numbers in families.items() for block in _blocks(texts, numbers)]


def _split(name: str) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """The text around the indices, and the indices; ``01`` is text, because of its leading zero."""
    parts = re.split(r"(?<!\d)(0|[1-9]\d{0,8})(?!\d)", name)
    return tuple(parts[::2]), tuple(map(int, parts[1::2]))


def _blocks(texts: Sequence[str], rows: Sequence[tuple[int, ...]]) -> list[NameRange]:
    columns = list(zip(*rows, strict=True))
    distinct = list(dict.fromkeys(columns))
    indices = [distinct.index(column) for column in columns]
    unique = dict.fromkeys(zip(*distinct, strict=True)) if distinct else {(): None}
    boxes: list[_Box] = [tuple((value, value) for value in row) for row in unique]
    for position in reversed(range(len(distinct))):
        boxes = _merge(boxes, position)
    blocks = []
    for box in boxes:
        text = first = texts[0]
        for index, after in zip(indices, texts[1:], strict=True):
            low, high = box[index]
            text += (str(low) if low == high else f"{{{low}…{high}}}") + after
            first += f"{low}{after}"
        count = 1
        for low, high in box:
            count *= high - low + 1
        blocks.append(NameRange(text, count, first))
    return blocks


def _merge(boxes: Iterable[_Box], position: int) -> list[_Box]:
    """Join boxes that are adjacent in one position and equal in all others."""
    lines: dict[_Box, list[tuple[int, int]]] = {}
    for box in boxes:
        lines.setdefault(box[:position] + box[position + 1 :], []).append(box[position])
    merged = []
    for others, spans in lines.items():
        spans.sort()
        run = spans[0]
        for low, high in spans[1:]:
            if low == run[1] + 1:
                run = run[0], high
                continue
            merged.append((*others[:position], run, *others[position:]))
            run = low, high
        merged.append((*others[:position], run, *others[position:]))
    return merged


def free_name(name: str, taken: Callable[[str], bool]) -> str:
    """The name, with a number appended if it is taken.

    >>> free_name("model", {"model", "model~2"}.__contains__)
    'model~3'
    """
    free, number = name, 2
    while taken(free):
        free, number = f"{name}~{number}", number + 1
    return free


def without_repeat(name: str) -> str:
    """The name that was taken when :func:`free_name` appended a number to it.

    >>> without_repeat("model~3")
    'model'
    """
    return _REPEATED.sub("", name)


def preformatted(text: str) -> str:
    """A text as a notebook shows it: as it is printed, and harmless.

    >>> preformatted("<b>")
    '<pre>&lt;b&gt;</pre>'
    """
    return f"<pre>{html.escape(chr(10).join(map(printable, text.split(chr(10)))))}</pre>"
