"""The axes of the matrix of formats: models, optimizers, writers, readers; and what a case gives.

A case is one file, read by every reader, each into a model that holds other values. What comes of
it is a word per reader: `all`, the groups of values that arrived, or the error. ``python -m
zoo.matrix``, in ``tests``, writes the table of `test_matrix.py` anew.
"""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf
import tf_keras

import tfckpt
from zoo import kinds, optimizers, shapes
from zoo.held import by_group, follow
from zoo.variables import inner

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

KERAS = {"keras3": keras, "tf_keras": tf_keras}
OTHER = {"keras3": "tf_keras", "tf_keras": "keras3"}

# --- Models ---

_DRAW = np.random.default_rng(1)
FLAT = _DRAW.normal(size=(2, shapes.WIDTH)).astype("float32")
SERIES = _DRAW.normal(size=(2, 4, shapes.WIDTH)).astype("float32")
IMAGES = _DRAW.normal(size=(2, 8, 8, shapes.WIDTH)).astype("float32")
TEXT = tf.constant(["a b", "c d"])


def crossed(k: Any) -> Any:
    """Layers with the names of one another's attributes, and a weight like one of a layer in it."""

    class Mix(k.layers.Layer):
        def __init__(self) -> None:
            super().__init__(name="mix")
            self.parts = [k.layers.Dense(shapes.WIDTH, use_bias=False)]

        def build(self, shape: Any) -> None:
            self.kernel = self.add_weight(name="kernel", shape=(shapes.WIDTH, shapes.WIDTH))
            super().build(shape)

        def call(self, x: Any) -> Any:
            return self.parts[0](tf.matmul(x, self.kernel))

    class Net(k.Model):
        def __init__(self) -> None:
            super().__init__()
            self.b = k.layers.Dense(shapes.WIDTH, name="a")
            self.a = k.layers.Dense(shapes.WIDTH, name="b")
            self.mix = Mix()

        def call(self, x: Any) -> Any:
            return self.mix(self.a(self.b(x)))

    return shapes.called(Net(), FLAT)


def module(_: Any) -> Any:
    """No Keras: lists, dicts, and modules in a module."""

    class Part(tf.Module):
        def __init__(self, more: bool) -> None:
            super().__init__()
            self.w = tf.Variable(tf.ones([shapes.WIDTH, shapes.WIDTH]))
            self.rows = [tf.Variable(tf.ones([shapes.WIDTH])) for _ in range(2)]
            self.keyed = {"x": tf.Variable(tf.ones([shapes.WIDTH]))}
            self.parts = [Part(more=False), Part(more=False)] if more else []

        @tf.function(input_signature=[tf.TensorSpec([None, shapes.WIDTH])])
        def __call__(self, x: Any) -> Any:
            for part in self.parts:
                x = part(x)
            return tf.matmul(x, self.w) * self.rows[0] + self.rows[1] - self.keyed["x"]

    return Part(more=True)


class Kind(NamedTuple):
    build: Callable[[Any], Any]
    batch: Any = FLAT


MODELS = {
    "sequential": Kind(shapes.sequential),
    "branches": Kind(shapes.functional),
    "nested": Kind(shapes.functional_in_functional),
    "subclassed": Kind(shapes.subclassed_in_functional),
    "containers": Kind(shapes.containers),
    "shared": Kind(shapes.shared),
    "crossed": Kind(crossed),
    "own_weights": Kind(shapes.own_weights),
    "recurrent": Kind(kinds.recurrent, SERIES),
    "attention": Kind(kinds.attention, SERIES),
    "seeded": Kind(kinds.seeded, IMAGES),
    "normalized": Kind(kinds.normalized),
    "text": Kind(kinds.text, TEXT),
    "in_layer": Kind(kinds.module_in_layer),
}
NO_KERAS = {"module": Kind(module)}

# --- Optimizers ---

OPTIMIZERS = {
    "sgd": optimizers.OPTIMIZERS["sgd_momentum"],
    "adam": optimizers.OPTIMIZERS["adam"],
    "adamw_ema": lambda k: k.optimizers.AdamW(use_ema=True),
    "amsgrad": optimizers.OPTIMIZERS["adam_amsgrad"],
    "rmsprop": optimizers.OPTIMIZERS["rmsprop_centered"],
    "adagrad": optimizers.OPTIMIZERS["adagrad"],
    "ftrl": optimizers.OPTIMIZERS["ftrl"],
    "scaled": optimizers.OPTIMIZERS["scaled_adam"],
}
ACCUMULATING = {"accumulating": optimizers.OPTIMIZERS["adam_accumulating"]}
LEGACY = {
    name: optimizers.OPTIMIZERS[name]
    for name in ("legacy_sgd", "legacy_adam", "legacy_rmsprop", "scaled_legacy_adam")
}
OF_FLAVOUR = {
    "keras3": {"none": None} | OPTIMIZERS | ACCUMULATING,
    "tf_keras": {"none": None} | OPTIMIZERS | LEGACY,
}
# What the other flavour has in place of an optimizer of one alone.
IN_PLACE = {
    "accumulating": "adam",
    "legacy_sgd": "sgd",
    "legacy_adam": "adam",
    "legacy_rmsprop": "rmsprop",
    "scaled_legacy_adam": "scaled",
}


# --- Sides: objects, trained for a step, and what they hold ---


class Value(NamedTuple):
    group: str
    value: np.ndarray


class Side:
    """Objects, and their variables by the names that tfckpt gives them.

    Every variable that they say they have must have one name, and the name lead to it.
    """

    def __init__(self, flavour: str, model: str, optimizer: str) -> None:
        kind = (MODELS | NO_KERAS)[model]
        k = KERAS.get(flavour)
        self.flavour, self.batch = flavour, kind.batch
        self.root = kind.build(k)
        self.objects = {"module" if k is None else "model": self.root}
        if optimizer != "none":
            answer = self.root(self.batch)
            wanted = tf.nest.map_structure(lambda each: np.ones(each.shape, "float32"), answer)
            one = len(tf.nest.flatten(answer)) == 1  # else metrics are named after layers
            self.root.compile(
                OF_FLAVOUR[flavour][optimizer](k),
                "mse",
                metrics=["mae"] if one else None,
                run_eagerly=True,
            )
            self.root.train_on_batch(self.batch, wanted)
        self.entries = tfckpt.inventory(**self.objects).entries
        self.variables = {
            name: inner(follow(self.objects, name))
            for name, entry in self.entries.items()
            if entry.role not in ("object", "vocabulary")
        }
        names = {id(variable): name for name, variable in self.variables.items()}
        assert len(names) == len(self.variables)
        self.groups = {
            names[id(variable)]: group
            for group, variables in by_group(self.objects).items()
            for variable in variables
        }
        assert self.groups.keys() == self.variables.keys()

    def scramble(self, seed: int) -> None:
        """Give each variable values of its own; vocabularies are the program's, and stay."""
        draw = np.random.default_rng(seed)
        for variable in self.variables.values():
            kind = variable.dtype.as_numpy_dtype
            if np.issubdtype(kind, np.floating):
                value = draw.uniform(0.5, 1.5, variable.shape)
            else:
                value = draw.integers(1, 1000, variable.shape)
            variable.assign(np.asarray(value).astype(kind))
        for layer in getattr(self.root, "layers", ()):
            if hasattr(layer, "finalize_state"):  # it computes with constants made of its variables
                layer.finalize_state()

    def values(self) -> dict[str, Value]:
        return {n: Value(self.groups[n], v.numpy()) for n, v in self.variables.items()}

    def answer(self) -> list[np.ndarray]:
        inference = {"training": False} if self.flavour in KERAS else {}
        return [np.asarray(each) for each in tf.nest.flatten(self.root(self.batch, **inference))]


class Scene:
    """What is written, the same with other values, and the same in the other flavour."""

    def __init__(self, flavour: str, model: str, optimizer: str) -> None:
        for k in KERAS.values():
            k.backend.clear_session()  # else generated names depend on what other tests built
        self.written = Side(flavour, model, optimizer)
        self.target = Side(flavour, model, optimizer)
        self.other = None
        if flavour in OTHER:
            self.other = Side(OTHER[flavour], model, IN_PLACE.get(optimizer, optimizer))


# --- Writers: side, where → path ---


def _tfckpt(side: Side, place: Path) -> str:
    return tfckpt.Checkpoint(**side.objects).save(str(place / "ckpt"))


def _manager(side: Side, place: Path) -> str | None:
    return tfckpt.CheckpointManager(tfckpt.Checkpoint(**side.objects), str(place), 2).save()


def _tensorflow(side: Side, place: Path) -> str:
    return _plain(side).save(str(place / "ckpt"))


def _plain(side: Side) -> Any:
    """As in TensorFlow's guide, the optimizer beside the model."""
    solver = getattr(side.root, "optimizer", None)
    return tf.train.Checkpoint(**side.objects, **({"optimizer": solver} if solver else {}))


def _save_weights(name: str, **more: Any) -> Callable[[Side, Path], str]:
    def write(side: Side, place: Path) -> str:
        side.root.save_weights(str(place / name), **more)
        return str(place / name)

    return write


def _save(name: str, **more: Any) -> Callable[[Side, Path], str]:
    def write(side: Side, place: Path) -> str:
        side.root.save(str(place / name), **more)
        return str(place / name)

    return write


def _export(side: Side, place: Path) -> str:
    if side.flavour not in KERAS:
        tf.saved_model.save(side.root, str(place))
    else:
        side.root.export(str(place), **({"verbose": False} if side.flavour == "keras3" else {}))
    return str(place)


def _convert(name: str) -> Callable[[Side, Path], str]:
    def write(side: Side, place: Path) -> str:
        model = [side.root] if name.endswith(".weights.h5") else []
        return tfckpt.convert(_tfckpt(side, place), place / name, *model)

    return write


class Writer(NamedTuple):
    """`slow` ones write a few models by default; `readers` in the order of the table."""

    write: Callable[[Side, Path], str | None]
    readers: tuple[str, ...]
    flavours: tuple[str, ...] = ("keras3", "tf_keras")
    slow: bool = False


ALL = ("keras3", "tf_keras", "tf")
ACROSS = ("across", "across_weights", "across_settings")
BY_TFCKPT = ("restore", "weights", "settings", "checkpoint", *ACROSS)
WRITERS = {
    "tfckpt": Writer(_tfckpt, (*BY_TFCKPT, "tensorflow"), ALL),
    "manager": Writer(_manager, ("restore", "tensorflow"), ALL),
    "rewritten": Writer(_convert("again"), ("restore", "tensorflow"), ALL),
    "tensorflow": Writer(_tensorflow, (*BY_TFCKPT, "tensorflow"), ALL),
    "weights_tf": Writer(_save_weights("weights"), (*BY_TFCKPT, "keras"), ("tf_keras",)),
    "weights_h5": Writer(_save_weights("w.weights.h5"), (*BY_TFCKPT, "keras")),
    "shards": Writer(
        _save_weights("w.weights.json", max_shard_size=1e-6), ("restore", "keras"), ("keras3",)
    ),
    "weights_keras2": Writer(_save_weights("w.h5"), (*BY_TFCKPT, "keras"), ("tf_keras",)),
    "h5": Writer(_save("m.h5"), (*BY_TFCKPT, "keras")),
    "keras": Writer(_save("m.keras"), (*BY_TFCKPT, "keras")),
    "saved_model": Writer(_save("m", save_format="tf"), BY_TFCKPT, ("tf_keras",), slow=True),
    "export": Writer(_export, BY_TFCKPT, ALL, slow=True),
    "safetensors": Writer(_convert("v.safetensors"), ("restore", "weights", "across"), ALL),
    "npz": Writer(_convert("v.npz"), ("restore",), ALL),
    "to_weights_h5": Writer(_convert("c.weights.h5"), ("restore", "keras")),
}

# --- Readers: path, side ---


def _restore(path: str, side: Side) -> None:
    tfckpt.restore(path, **side.objects)


def _only_weights(path: str, side: Side) -> None:
    (root,) = side.objects
    tfckpt.restore(path, include=[f"{root}/**"], **side.objects)


def _own_settings(path: str, side: Side) -> None:
    """As for many of Keras's files, which hold no learning rate."""
    tfckpt.restore(path, optimizer={"hyperparameters": "config"}, **side.objects)


def _checkpoint(path: str, side: Side) -> None:
    tfckpt.Checkpoint(**side.objects).restore(path).expect_partial()


def _by_tensorflow(path: str, side: Side) -> None:
    _plain(side).restore(path).assert_existing_objects_matched()


def _by_keras(path: str, side: Side) -> None:
    status = side.root.load_weights(path)
    if status is not None:  # it is in TensorFlow's format
        status.expect_partial()


READERS = {
    "restore": _restore,
    "weights": _only_weights,
    "settings": _own_settings,
    "checkpoint": _checkpoint,
    "across": _restore,
    "across_weights": _only_weights,
    "across_settings": _own_settings,
    "tensorflow": _by_tensorflow,
    "keras": _by_keras,
}
NOT_OURS = ("tensorflow", "keras")

# --- Cases ---


class Case(NamedTuple):
    flavour: str
    model: str
    optimizer: str
    writer: str

    def __str__(self) -> str:
        return "-".join(self)


BASE = "sequential"
SLOW_MODELS = (BASE, "nested", "module")


def cases() -> dict[Case, bool]:
    """All of them → whether they run by default: every model with Adam, every optimizer."""
    every = [
        (flavour, model, optimizer)
        for flavour in KERAS
        for model in MODELS
        for optimizer in OF_FLAVOUR[flavour]
    ]
    return {
        case: (case.model == BASE or case.optimizer in ("adam", "none"))
        and (case.optimizer != "none" or case.model in (BASE, "module"))
        and (not writer.slow or (case.model in SLOW_MODELS and case.optimizer in ("adam", "none")))
        for scene in [*every, ("tf", "module", "none")]
        for name, writer in WRITERS.items()
        if scene[0] in writer.flavours
        for case in [Case(*scene, name)]
    }


# --- What a case gives ---

# Of a reader: the groups of values that arrived, by letter, with a count if not all of a group did.
LETTERS = {
    "w": "weights",
    "o": "optimizer",
    "s": "settings",
    "r": "seeds",
    "m": "metrics",
}
_AVERAGE = "optimizer/moving_average/"
ERRORS = {"RefusedError": "refused", "UnsupportedCheckpointError": "unsupported"}


def row(scene: Scene, writer: str, place: Path) -> dict[str, str]:
    """Write the file, and say what is in it and what each reader makes of it."""
    written = scene.written
    written.scramble(1)
    wanted, answer = written.values(), written.answer()
    try:
        path = WRITERS[writer].write(written, place)
    except Exception as error:
        return {"written": ERRORS.get(type(error).__name__, type(error).__name__)}
    assert path is not None
    found = {"names": _names(path, place, written, wanted)}
    for name in WRITERS[writer].readers:
        across = name.startswith("across")
        side = scene.other if across else scene.target
        if side is None:
            continue
        side.scramble(2)
        before = side.values()
        try:
            READERS[name](path, side)
            error = ""
        except (Exception, AssertionError) as caught:
            error = ERRORS.get(type(caught).__name__, type(caught).__name__)
        after = side.values()
        found[name] = error or _arrived(before, after, wanted)
        if name in NOT_OURS:
            continue
        if error:
            assert _arrived(before, after, before) == "all", f"{name}: refused, but changed"
        elif found[name] == "all":
            for got, meant in zip(side.answer(), answer, strict=True):
                tolerance = {"rtol": 2e-5, "atol": 1e-6} if across else {"rtol": 0}
                np.testing.assert_allclose(got, meant, **tolerance, err_msg=name)
    return found


def _arrived(
    before: Mapping[str, Value], after: Mapping[str, Value], wanted: Mapping[str, Value]
) -> str:
    came: dict[str, list[bool]] = {}
    for name in before.keys() & wanted.keys():
        new = np.array_equal(after[name].value, wanted[name].value)
        weight = after.get(
            name.replace(_AVERAGE, "model/")
        )  # one that is not restored begins at it
        kept = [before[name], *([weight] if weight and _AVERAGE in name else [])]
        own = any(np.array_equal(after[name].value, each.value) for each in kept)
        assert new or own, f"{name} is another's"
        came.setdefault(before[name].group, []).append(new)
    if all(map(all, came.values())):
        return "all"
    words = [
        letter + ("" if all(each) else f"{sum(each)}/{len(each)}")
        for letter, group in LETTERS.items()
        if any(each := came.get(group, ()))
    ]
    return "".join(words) or "none"


def _names(path: str, place: Path, written: Side, wanted: Mapping[str, Value]) -> str:
    """What the file's names lack (-), have more (+), and call by the name of another value (~)."""
    if path.endswith(".npz"):
        values = np.load(path)
        names = set(values.files)
    else:
        stored = tfckpt.inspect(path).inventory.entries
        texts = [name for name, entry in stored.items() if entry.dtype == "string"]
        values = np.load(tfckpt.convert(path, place / "values.npz", exclude=texts))
        names = set(stored)
    entries = written.entries
    roles = Counter(entry.role.value for entry in entries.values())
    missing = Counter(entries[name].role.value for name in entries.keys() - names)
    exchanged = Counter(
        entries[name].role.value
        for name in wanted.keys() & set(values.files)
        if not np.array_equal(values[name], wanted[name].value)
    )
    more = names - entries.keys() - {"save_counter"}
    found = [f"-{role}" + (f":{n}" if n < roles[role] else "") for role, n in missing.items()]
    found += [f"~{role}:{n}" for role, n in exchanged.items()]
    return ",".join([*sorted(found), *["+" for _ in [1] if more]]) or "all"


# --- The table ---

TABLE = Path(__file__).parents[1] / "conformance" / "matrix.txt"


def table() -> dict[str, str]:
    """Case → its row, as it is written there."""
    lines = TABLE.read_text(encoding="utf-8").splitlines()
    return dict(line.split(": ", 1) for line in lines)


def as_text(found: Mapping[str, str]) -> str:
    return " ".join(f"{name}={word}" for name, word in found.items())


def main() -> None:
    """Write the table, or the rows whose cases begin with an argument."""
    rows = table() if len(sys.argv) > 1 else {}
    scenes = lru_cache(1)(Scene)
    for case in [case for case, usual in cases().items() if usual]:
        if str(case).startswith(tuple(sys.argv[1:]) or ""):
            with tempfile.TemporaryDirectory() as place:
                rows[str(case)] = as_text(row(scenes(*case[:3]), case.writer, Path(place)))
    TABLE.write_text("".join(f"{case}: {row}\n" for case, row in rows.items()), encoding="utf-8")


if __name__ == "__main__":
    main()
