"""The values of a commit record, which are most of its content, and the layers.

There are tens of thousands of them in every save and restore. Writing joins texts of repeated
parts; reading checks all values in one loop. Where that loop finds anything invalid it returns
None, and the record's reader finds out which value it is; the loop accepts nothing that the reader
would refuse.
"""

from __future__ import annotations

import json
from json.encoder import encode_basestring
from typing import TYPE_CHECKING, Any

from tfckpt.core.inventory import (
    ATTRIBUTES,
    DICT,
    LIST,
    ORDERS,
    SEQUENCE,
    Container,
    Entry,
    Layer,
    Role,
)
from tfckpt.stored.bundles.index import INT64

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from tfckpt.core.inventory import Shape
    from tfckpt.errors import DamagedCheckpointError

_END, _LINE = b"\n]", b",\n"
_PIECE = 1 << 16
FIELDS = frozenset(Entry._fields)
# of a layer: place, own, auto, given, cls, created, fed, feeds, settings
_LAYER: list[Any] = [str, str, bool, (bool, type(None)), str, int, str, str, str]
_KINDS = {SEQUENCE, LIST, DICT, ATTRIBUTES}
_ROLES: dict[str, Role] = {role.value: role for role in Role}


class _Texts(dict[Any, str]):
    """A cache of JSON texts for repeated values."""

    def __missing__(self, value: Any) -> str:
        text = self[value] = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        return text


def render(entries: Iterable[Entry]) -> str:
    """Each value as a JSON object on its own line, with sorted fields and without defaults.

    >>> print(render([Entry("model/a", Role.WEIGHT, "float32", (2, 3), 24, "a", crc32c=7)]))
    {"crc32c":7,"dtype":"float32","key":"a","name":"model/a","nbytes":24,"role":"weight","shape":[2,3]}
    """
    text, often = encode_basestring, _Texts()
    return ",\n".join(
        [
            "{"
            + ("" if crc32c is None else f'"crc32c":{crc32c},')
            + f'"dtype":{often[dtype]},'
            + (f'"key":{text(key)},' if key else "")
            + f'"name":{text(name)},'
            + (f'"nbytes":{nbytes},' if nbytes else "")
            + (f'"of":{text(of)},' if of else "")
            + f'"role":{often[role]},"shape":{often[shape]}'
            + (f',"slot":{often[slot]}}}' if slot else "}")
            for name, role, dtype, shape, nbytes, key, slot, of, crc32c in entries
        ]
    )


def read(text: bytes, parse_int: Callable[[str], int] | None = None) -> dict[str, Entry] | None:
    """Name → value, from the text that :func:`render` wrote and its closing bracket; None as
    :func:`parse`.

    The text is parsed in pieces to save memory and garbage collection. JSON strings contain no line
    ends, so a piece cut between lines either fails to parse or parses as in the whole text.
    """
    entries: dict[str, Entry] = {}
    start, end, count = 0, len(text) - len(_END), 0
    if text[end:] != _END:
        return None
    while start < end:
        cut = text.find(_LINE, start + _PIECE, end)
        stop = end if cut < 0 else cut
        try:
            items = json.loads(b"[" + text[start:stop] + b"]", parse_int=parse_int)
        except (ValueError, RecursionError):
            return None
        if not items or (values := parse(items)) is None:
            return None
        entries.update(values)
        start, count = stop + len(_LINE), count + len(items)
    return entries if len(entries) == count else None


def parse(items: Sequence[Any]) -> dict[str, Entry] | None:
    """Name → value, from the objects that :func:`render` wrote; None where any is invalid."""
    if not ({dict}.issuperset(map(type, items)) and FIELDS.issuperset(set().union(*items))):
        return None
    entries: dict[str, Entry] = {}
    shapes: dict[Shape | None, Shape | None] = {None: None}
    for item in items:
        get = item.get
        name, role, dtype, sizes = get("name"), get("role"), get("dtype"), get("shape")
        key, slot, of = get("key", ""), get("slot", ""), get("of", "")
        nbytes, crc32c = get("nbytes", 0), get("crc32c")
        required = type(name) is type(role) is type(dtype) is str
        texts = required and type(key) is type(slot) is type(of) is str
        if not (
            (texts and name and role in _ROLES)
            and (sizes is None or _is_shape(sizes))
            and (type(nbytes) is int and 0 <= nbytes < INT64)
            and (crc32c is None or (type(crc32c) is int and 0 <= crc32c < 1 << 32))
        ):
            return None
        shape = None if sizes is None else tuple(sizes)
        shape = shapes.setdefault(shape, shape)
        # like Entry(…), without calling a Python function
        fields = name, _ROLES[role], dtype, shape, nbytes, key, slot, of, crc32c
        entries[name] = tuple.__new__(Entry, fields)
    return entries if len(entries) == len(items) else None


def _is_shape(sizes: Any) -> bool:
    if type(sizes) is not list:
        return False
    for size in sizes:  # noqa: SIM110 (`all` of a generator takes twice as long)
        if type(size) is not int or not 0 <= size < INT64:
            return False
    return True


def containers_to_json(containers: Mapping[str, Container]) -> dict[str, list[Any]]:
    """Path → kind, order, sizes, layers, each with its fields in order, as plain JSON types."""
    return {
        path: [held.kind, held.order, [*held.sizes], [[*x[: len(_LAYER)]] for x in held.layers]]
        for path, held in containers.items()
    }


def containers_from_json(
    items: Mapping[str, list[Any]], damaged: Callable[[str], DamagedCheckpointError]
) -> dict[str, Container]:
    """Path → container; ``damaged`` makes the error for an invalid one."""
    found = {}
    for path, item in items.items():
        if [type(field) for field in item] != [str, str, list, list]:
            raise damaged("'containers' contains an invalid container")
        kind, order, sizes, layers = item
        valid = kind in _KINDS and order in ORDERS and all(type(size) is int for size in sizes)
        if not valid or not all(type(each) is list and _is_layer(each) for each in layers):
            raise damaged("'containers' contains an invalid layer")
        held = tuple(Layer(*each) for each in layers)
        found[path] = Container(kind, held, order, tuple(sizes))
    return found


def _is_layer(fields: list[Any]) -> bool:
    return len(fields) == len(_LAYER) and all(map(isinstance, fields, _LAYER))
