"""Reads what ``keras.callbacks.OrbaxCheckpoint`` wrote: variables by their own names, no layers.

A step is a directory with a tree of arrays, ``pytree``: JSON, and an OCDBT store of Zarr arrays,
which the package ``tensorstore`` reads; neither Orbax nor JAX is needed. Layers are known from the
variables' names alone, as in a file of TF1, and slots from those of their variables. The name of a
random generator does not say which layer has it. A scalar of TensorFlow's is a Python number, whose
dtype was not saved.

tensorstore unpacks whatever it meets, and aborts where the memory ends: so the frames of Zstandard
are counted first (RFC 8878, 3.1.1), wherever they are in the files, and no other codec is let in.
"""

from __future__ import annotations

import contextlib
import json
import math
from typing import TYPE_CHECKING, Any

from tfckpt.core.dtypes import ITEM_BYTES
from tfckpt.core.inventory import Container, Entry, Inventory, Layer, Role
from tfckpt.core.names import METRICS, MODEL, OPTIMIZER, SEED
from tfckpt.core.optimizer_names import (
    LOSS_SCALE,
    by_slot_path,
    optimizer_class,
    optimizer_value,
    slot_name,
    slot_tail,
    split_slot,
)
from tfckpt.errors import (
    DamagedCheckpointError,
    NotInstalledError,
    UnsupportedCheckpointError,
)
from tfckpt.stored.bundles.values import StoredValues
from tfckpt.stored.formats.checkpoint import StoredCheckpoint
from tfckpt.stored.formats.exported import SEED_STATE, in_scope_of_model
from tfckpt.stored.formats.keras_layers import KERAS_BASES
from tfckpt.stored.formats.tf1 import KeyLayers
from tfckpt.stored.io import limits
from tfckpt.stored.io.explain import ORBAX_TREE, orbax_step
from tfckpt.stored.io.files import absolute, content, digest_of, join, reading
from tfckpt.stored.io.limits import Room

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    import numpy as np

    from tfckpt.stored.formats.checkpoint import Opening
    from tfckpt.stored.io.files import Files, Handle

_WEIGHTS, _STATE = ("trainable_variables", "non_trainable_variables"), "optimizer_variables"
_METRICS = "metrics_variables"
_TREES = {*_WEIGHTS, _STATE, _METRICS}
# Adamax and all others have attributes of other names.
_WORDS = {"iteration": "iterations", "norm": "velocity"}
_ARRAYS, _EMPTY = ("jax.Array", "np.ndarray", "scalar"), ("Dict", "None")
_KIND, _MAX_DEPTH = "a checkpoint of Orbax", 8
_CACHE = 1 << 26
_CHUNK = 1 << 20
_CODECS = {"bytes", "crc32c", "sharding_indexed", "transpose", "zstd"}
_FRAME, _BLOCK, _LEAST = b"\x28\xb5\x2f\xfd", 1 << 17, 1 << 10
_REPEATED, _PACKED, _RESERVED = 1, 2, 3  # the kinds of blocks; 0 is stored as it is


def open_orbax(path: str, opening: Opening) -> StoredCheckpoint:
    """Open a step, or the newest one in a directory of steps."""
    step = orbax_step(path, opening.files)
    kinds = _kinds(step, opening.files)
    trees: dict[str, dict[str, str]] = {}
    for key, (place, _) in kinds.items():
        tree = MODEL if place[0] in _WEIGHTS else place[0]
        if trees.setdefault(tree, {}).setdefault("/".join(place[1:]), key) != key:
            message = "two variables have this name, so tfckpt cannot tell them apart"
            raise UnsupportedCheckpointError(message, path=step, name="/".join(place[1:]))
    arrays = _Arrays(step, kinds, opening.files)
    return StoredCheckpoint(step, _inventory(step, trees, arrays, opening), arrays, "orbax")


def _kinds(step: str, files: Files) -> dict[str, tuple[tuple[str, ...], str]]:
    """Key → the place of an array in the tree, and its type in the program that saved it."""
    kinds: dict[str, tuple[tuple[str, ...], str]] = {}
    with reading(step, "", _KIND):
        with reading(tree := join(step, f"{ORBAX_TREE}/_METADATA")):
            document = json.loads(content(tree, files, limits.TEXT))
        for node in document["tree_metadata"].values():
            place = tuple(str(part["key"]) for part in node["key_metadata"])
            kind, key = str(node["value_metadata"]["value_type"]), ".".join(place)
            if place[0] not in _TREES or kind not in (*_ARRAYS, *_EMPTY):
                message = f"was not written by Keras's OrbaxCheckpoint: it has {kind[:50]!r} values"
                hint = "Load it with Orbax."
                raise UnsupportedCheckpointError(message, path=step, name=key, hint=hint)
            if key in kinds:
                raise DamagedCheckpointError("is in the tree twice", path=step, name=key)
            if kind in _ARRAYS:
                kinds[key] = place, kind
        if not (document.get("use_ocdbt") and document.get("use_zarr3")):
            message, hint = "is not in OCDBT and Zarr 3, as Keras saves", "Load it with Orbax."
            raise UnsupportedCheckpointError(message, path=step, hint=hint)
    return kinds


class _Arrays(StoredValues):
    """The arrays of a tree, by their paths joined with dots."""

    def __init__(
        self, step: str, kinds: Mapping[str, tuple[tuple[str, ...], str]], files: Files
    ) -> None:
        try:
            import tensorstore
        except ImportError as error:
            message = f"{step}: the package that reads Orbax's files is not installed ({error})"
            hint = "pip install 'tfckpt[orbax]' installs it"
            raise NotInstalledError(message, hint=hint) from error
        self._step, self._files = step, files
        with reading(step):
            self._found = [*self._walk(step, 0)]
            total = sum(handle.size for handle in self._handles())
            frames, room = Room(step, total), Room(step, total)
            for handle in self._handles():
                _count_frames(handle, frames)
        context = tensorstore.Context({"cache_pool": {"total_bytes_limit": _CACHE}})
        # By default, a missing chunk is read as zeros.
        spec: dict[str, Any] = {"driver": "zarr3", "fill_missing_data_reads": False}
        base = {"driver": "file", "path": f"{absolute(join(step, ORBAX_TREE))}/"}
        self._opened: dict[str, Any] = {}
        self._dtypes: dict[str, str] = {}
        for key, (_, kind) in kinds.items():
            with reading(step, key, _KIND):
                store = {"driver": "ocdbt", "base": base, "path": f"{key}/"}
                array: Any = tensorstore.open(
                    spec | {"kvstore": store}, context=context, open=True, read=True
                ).result()
                dtype, chunk = array.dtype.name, array.chunk_layout.write_chunk.shape or ()
                if dtype not in ITEM_BYTES:
                    raise UnsupportedCheckpointError(f"has the dtype {dtype}", path=step, name=key)
                if others := {*_codecs(array.codec.to_json())} - _CODECS:
                    message = f"is packed by {min(others)}, which Orbax does not use"
                    raise UnsupportedCheckpointError(message, path=step, name=key)
                sides = [max(*both, 1) for both in zip(array.shape, chunk, strict=True)]
                room.take(math.prod(sides) * ITEM_BYTES[dtype], key)
                self._opened[key] = array
                exact = kind == "scalar" and dtype == "float64" and not array.shape
                self._dtypes[key] = "float32" if exact and self._in_single(key) else dtype

    def entry(self, key: str, name: str, role: Role, slot: str = "", of: str = "") -> Entry:
        shape, dtype = tuple(self._opened[key].shape), self._dtypes[key]
        return Entry(name, role, dtype, shape, math.prod(shape) * ITEM_BYTES[dtype], key, slot, of)

    def read(self, key: str) -> np.ndarray:
        with reading(self._step, key, _KIND):
            value: np.ndarray = self._opened[key].read(order="C").result()
            return value.astype(self._dtypes.get(key, value.dtype), copy=False)

    def _in_single(self, key: str) -> bool:
        import numpy as np

        value = self.read(key)
        with np.errstate(over="ignore"):
            return np.array_equal(value.astype("float32"), value, equal_nan=True)

    @property
    def digest(self) -> str:
        """SHA-256 of the content of all files, concatenated."""
        with reading(self._step):
            return digest_of(self._handles())

    def _handles(self) -> Iterator[Handle]:
        for path in self._found:
            with contextlib.closing(self._files.open_read(path)) as handle:
                yield handle

    def _walk(self, path: str, depth: int) -> Iterator[str]:
        for name in sorted(self._files.listdir(path)):
            below = join(path, name)
            if depth < _MAX_DEPTH and self._files.is_dir(below):
                yield from self._walk(below, depth + 1)
            else:
                yield below

    def close(self) -> None:
        self._opened.clear()


def _codecs(codecs: Any) -> Iterator[str]:
    """The names of codecs, those within others among them."""
    held = [*codecs.values()] if isinstance(codecs, dict) else codecs
    if isinstance(codecs, dict) and "name" in codecs:
        yield str(codecs["name"])
    for one in held if isinstance(held, list) else ():
        yield from _codecs(one)


def _count_frames(handle: Handle, room: Room) -> None:
    """Take room for what the frames of Zstandard in a file unpack to at most."""
    at = 0
    while at < handle.size:
        found = handle.pread(at, _CHUNK).find(_FRAME)
        if found < 0:
            at += _CHUNK - len(_FRAME) + 1
            continue
        at += found + len(_FRAME)  # not its end, since it may be none and have others in it
        for block in _blocks(handle, at):
            room.take(max(block, _LEAST))


def _blocks(handle: Handle, at: int) -> Iterator[int]:
    """The size at most of each block of a frame, from the end of its first four bytes on."""
    head = handle.pread(at, 14)
    if len(head) < 2:
        return
    single, identity, count = head[0] >> 5 & 1, (0, 1, 2, 4)[head[0] & 3], head[0] >> 6
    length = 1 << count if count or single else 0  # of the size of the content
    start = 1 + (not single) + identity
    if single:
        window = int.from_bytes(head[start : start + length], "little") + 256 * (count == 1)
    else:
        window = (8 + (head[1] & 7)) << (7 + (head[1] >> 3))
    at, last = at + start + length, False
    while not last and len(head := handle.pread(at, 3)) == 3:
        number = int.from_bytes(head, "little")
        last, kind, length = bool(number & 1), number >> 1 & 3, number >> 3
        if kind == _RESERVED or length > _BLOCK:  # it was no frame
            return
        at += 3 + (1 if kind == _REPEATED else length)
        yield min(window, _BLOCK) if kind == _PACKED else length


def _inventory(
    step: str, trees: Mapping[str, Mapping[str, str]], arrays: _Arrays, opening: Opening
) -> Inventory:
    weights = trees.get(MODEL, {})
    seeds = {name for name in weights if name.rpartition("/")[2] == SEED_STATE}
    own = {name: name for name in weights if name not in seeds}
    heads, bases = [name.partition("/")[0] for name in own], KERAS_BASES | set(opening.bases)
    if all(name.count("/") > 1 for name in own) and in_scope_of_model(heads, opening.roots, bases):
        own = {name: name.partition("/")[2] for name in own}
    layers = KeyLayers(own.values(), opening.bases)
    full = {name: f"{MODEL}/{layers.rename(short)}" for name, short in own.items()}
    entries = [arrays.entry(weights[name], path, Role.WEIGHT) for name, path in full.items()]
    for name, key in trees.get(_METRICS, {}).items():
        entries.append(arrays.entry(key, f"{METRICS}/{name}", Role.METRIC))
    state, variables = trees.get(_STATE, {}), by_slot_path(full.items())
    scopes = {scope for name in state if (scope := name.rpartition("/")[0])}
    scaled = {scope for scope in scopes if f"{scope}/dynamic_scale" in state}
    paths = {scope: f"{OPTIMIZER}/{scope}" for scope in sorted(scopes - scaled)}
    paths = dict.fromkeys(paths, OPTIMIZER) if len(paths) == 1 else paths
    optimizers = {path: optimizer_class(scope) for scope, path in paths.items()}
    paths |= dict.fromkeys(scaled, f"{OPTIMIZER}/{LOSS_SCALE}")
    lone = sum("/" not in name for name in state) == 1 and [*optimizers.values()] == ["nadam"]
    for name, key in state.items():
        scope, _, word = name.rpartition("/")
        path = paths.get(scope, OPTIMIZER)
        of, slot = split_slot(word, variables)
        if of is not None:
            slot = _WORDS.get(slot, slot_name(slot))
            entries.append(arrays.entry(key, f"{path}/{slot}{slot_tail(of)}", Role.SLOT, slot, of))
        else:  # Nadam's product is the only value of Keras's optimizers without a name
            word = "u_product" if lone and not scope else _WORDS.get(word, word)
            value, role = optimizer_value(word)
            entries.append(arrays.entry(key, f"{path}/{value}", role))
    by_name = {entry.name: entry for entry in entries}
    if len(by_name) != len(entries):
        raise DamagedCheckpointError("has two values of one name", path=step)
    containers = {f"{MODEL}/{path}".rstrip("/"): held for path, held in layers.containers.items()}
    containers = {path: _with_named(path, held, full.values()) for path, held in containers.items()}
    left_out = {f"{SEED}/{name}": "its name does not say which layer has it" for name in seeds}
    return Inventory(step, by_name, containers, optimizers=optimizers, left_out=left_out)


def _with_named(path: str, held: Container, names: Iterable[str]) -> Container:
    """The container of layers with automatic names, and of those that have others."""
    below = (
        name.removeprefix(f"{path}/").split("/") for name in names if name.startswith(f"{path}/")
    )
    places = {first for first, *rest in below if rest} - {row.place for row in held.layers}
    named = (Layer(place, place, given=True) for place in sorted(places))
    return held._replace(layers=(*held.layers, *named))
