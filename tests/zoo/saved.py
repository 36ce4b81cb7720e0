"""Models as Keras's own tests save them, and what of each file is restored beside Keras's own load.

Each model is built three times, with other values each time: one is saved, one loads the file by
``load_weights``, one is restored by tfckpt. What comes of it is a word:

=============  ====================================================================
``right``      every value is the one that Keras loads
``refused``    although Keras loads it
``wrong``      a value that is not Keras's; of a vocabulary, not that of the writer
``said``       refused with the reason and the way: the file does not tell which layers were
               frozen, and is restored once that is said; or only the layer's own code can read it
``lost``       refused, and of what Keras loads some is missing, e.g. a list in a list
``-``          Keras does not write, or does not load, such a file of such a model
=============  ====================================================================
"""

from __future__ import annotations

import functools
import importlib
import os
import shutil
import tempfile
import zipfile
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("KERAS_BACKEND", "tensorflow")

from collections.abc import Callable, Sequence

import numpy as np

import tfckpt
from tfckpt.errors import TfckptError
from zoo import models as zoo
from zoo.models import WIDTH, called, chain, dense, in_turn, net, stack, wired
from zoo.values import fill, read, variables

Build = Callable[[Any], Any]
KINDS = (".keras", ".weights.h5", ".h5", "weights.h5", ".weights.json", "directory")
FLAVOURS = ("keras", "tf_keras")
RIGHT, REFUSED, WRONG, NEVER = "right", "refused", "wrong", "-"
SAID, LOST = "said", "lost"


# Classes of a user


@functools.cache
def _classes(k: Any) -> Any:
    """Registered layers and models, as in keras/src/saving/saving_lib_test.py."""
    register = functools.partial(k.saving.register_keras_serializable, package="my_package")

    @register()
    class Block(k.layers.Layer):
        def __init__(self, units=WIDTH, **kwargs):
            super().__init__(**kwargs)
            self.units, self.nested_layer = units, k.layers.Dense(units, name="dense")

        def build(self, shape):
            self.more = [self.add_weight(shape=(), name=f"more_{n}") for n in range(2)]
            self.by_key = {"x": self.add_weight(shape=(), name="by_key")}
            self.nested_layer.build(shape)
            super().build(shape)

        def call(self, x):
            return self.nested_layer(x) * self.more[0] + self.more[1] * self.by_key["x"]

        def get_config(self):
            return {**super().get_config(), "units": self.units}

    @register()
    class Holder(k.layers.Layer):
        """A layer whose layers are its arguments."""

        def __init__(self, first, second=None, **kwargs):
            super().__init__(**kwargs)
            self.first, self.second = first, second or k.layers.Dense(WIDTH)

        def call(self, x):
            return self.first(self.second(x))

        def get_config(self):
            inner = {name: getattr(self, name) for name in ("first", "second")}
            inner = {n: k.saving.serialize_keras_object(each) for n, each in inner.items()}
            return {**super().get_config(), **inner}

    @register()
    class Own(Block):
        """Writes what it has under names of its own, and in another order."""

        def save_own_variables(self, store):
            store["factor"], store["others"] = self.more[1].numpy(), [self.more[0].numpy()] * 2
            store["key"] = self.by_key["x"].numpy()

        def load_own_variables(self, store):
            self.more[1].assign(np.asarray(store["factor"]))
            self.more[0].assign(np.asarray(store["others"])[0])
            self.by_key["x"].assign(np.asarray(store["key"]))

    @register()
    class Silent(Block):
        """Writes nothing of its own, and computes it again."""

        def save_own_variables(self, store):
            pass

        def load_own_variables(self, store):
            for number, each in enumerate((*self.more, self.by_key["x"])):
                each.assign(number + 1.0)

    @register()
    class Functional(k.Model):
        """A functional model whose attribute is one of its layers."""

        def __init__(self, **kwargs):
            x, first = k.Input((WIDTH,)), k.layers.Dense(WIDTH, name="first_dense")
            super().__init__(x, k.layers.Dense(1, name="second_dense")(first(x)), **kwargs)
            self.layer_attr = first

        def get_config(self):
            return {}

    @register()
    class Stack(k.Sequential):
        def compile(self, *args, **kwargs):
            super().compile(*args, **kwargs)

    found = (Block, Holder, Own, Silent, Functional, Stack)
    return type("Classes", (), {each.__name__: each for each in found})


def _held(k: Any, parts: Callable[[], Any], each: Callable[[Any], Any] = lambda x: x) -> Any:
    """A subclassed model with an attribute of whatever holds its layers, called in turn."""

    def flat(part):
        if isinstance(part, dict):
            part = part.values()
        if hasattr(part, "__iter__") and not isinstance(part, k.layers.Layer):
            for one in part:
                if one is not part:
                    yield from flat(one)
        else:
            yield part

    def call(self, x):
        for layer in flat(self.parts):
            x = each(layer)(x)
        return self.last(x)

    attributes = lambda: {"parts": parts(), "last": k.layers.Dense(2)}  # noqa: E731
    return called(net(k.Model, attributes, call)())


def _cyclic(k):
    model = zoo.net(k.Model, lambda: {"out": k.layers.Dense(2)}, lambda self, x: self.out(x))()
    model.parts = []
    model.parts.append(model.parts)
    return called(model)


def _twice(k):
    def parts():
        first, second = dense(k, None, None)
        return {"alpha": first, "beta": second, "gamma": first, "both": [second, first]}

    call = lambda self, x: self.alpha(self.beta(x))  # noqa: E731
    return called(net(k.Model, parts, call)())


def _nested(k, name=None, *, again=False):
    inner = wired(k, *dense(k, None, None), name=name)
    x = k.Input((WIDTH,))
    y = inner(inner(x) if again else x)
    return k.Model(x, k.layers.Dense(1)(inner(y) if again else wired(k, *dense(k, None))(y)))


def _frozen(model, *places):
    """The same with layers at these places frozen; a place is a number, or several inside."""
    for place in places:
        layer = model
        for number in place if isinstance(place, tuple) else (place,):
            layer = layer.layers[number]
        layer.trainable = False
    return model


def _frozen_part(k, attribute):
    model = stack(k, k.layers.Bidirectional(k.layers.LSTM(2)), k.layers.Dense(2), shape=(3, 2))
    getattr(model.layers[0], attribute).trainable = False
    return model


def _frozen_blocks(k):
    cls = zoo.block(k)
    model = called(stack(k, cls(), cls(), k.layers.Dense(1)))
    model.layers[0].inner.trainable = False
    model.layers[1].norm.trainable = False
    return model


def _wrapped(k):
    inner = k.layers.TimeDistributed(stack(k, *dense(k, None, None)))
    last = k.layers.Bidirectional(k.layers.LSTM(2, return_sequences=True), merge_mode="sum")
    return stack(
        k, inner, last, k.layers.Bidirectional(k.layers.RNN(k.layers.GRUCell(2))), shape=(4, WIDTH)
    )


def _tables(k):
    words, numbers = k.Input((1,), dtype="string"), k.Input((1,), dtype="int64")
    first = k.layers.StringLookup(vocabulary=["a", "b", "c"], output_mode="multi_hot")
    second = k.layers.IntegerLookup(vocabulary=[7, 9], output_mode="multi_hot")
    both = k.layers.Concatenate()([first(words), second(numbers)])
    return k.Model([words, numbers], k.layers.Dense(2)(both))


def _preprocessed(k):
    layers = [k.layers.Normalization(), k.layers.Discretization(num_bins=3, output_mode="one_hot")]
    for layer in layers:
        layer.adapt(np.arange(30, dtype="float32").reshape(10, 3))
    return stack(k, layers[0], k.layers.Dense(2))


def _quantized(mode, make):
    def build(k):
        model = make(k)
        model.quantize(mode)
        return model

    return build


def embedded(k):
    layers = k.layers.Embedding(10, 8), k.layers.Flatten(), k.layers.Dense(3)
    return stack(k, *layers, shape=(5,))


def einsum(k):
    layers = k.layers.EinsumDense("abc,cd->abd", (None, 6), bias_axes="d"), k.layers.Dense(4)
    return stack(k, *layers, shape=(5, 8))


def attended(k):
    x = k.Input((5, 8))
    return k.Model(x, k.layers.Dense(3)(k.layers.MultiHeadAttention(2, 4)(x, x)))


def _wide(k):
    layers = dense(k, "a", None, width=8)
    return stack(k, *layers, k.layers.Dense(4, use_bias=False), shape=(8,))


def _called_like_others(k):
    layers = (
        k.layers.LayerNormalization(name="dense"),
        k.layers.Dense(4, name="layer_normalization"),
        *(k.layers.Dense(4, name="dense_1"), k.layers.Dense(2, name="out")),
    )
    return wired(k, *layers, shape=(4,))


def _called_in_called(k):
    inner = [k.layers.Dense(4, name="x"), k.layers.LayerNormalization(name="dense_3")]
    inside = stack(k, *inner, shape=(4,), name="inside")
    last = k.layers.BatchNormalization(name="conv2d"), k.layers.Dense(3, name="model_1")
    return stack(k, inside, *last, shape=(4,))


def _called_like_an_attribute(k):
    def parts():
        norm, model = k.layers.LayerNormalization(), k.layers.Dense(4, name="model")
        both = [k.layers.Dense(4), k.layers.LayerNormalization(name="dense")]
        return {"dense": norm, "model": model, "parts": both}

    def call(self, x):
        return self.parts[1](self.parts[0](self.model(self.dense(x))))

    return called(net(k.Model, parts, call)(), np.zeros((1, 4), "float32"))


def _scalar_first(k):
    class Scaled(k.layers.Layer):
        def build(self, shape):
            self.scale = self.add_weight(name="scale", shape=())
            super().build(shape)

        def call(self, x):
            return x * self.scale

    return called(stack(k, Scaled(), *dense(k, None)))


def _branches(k):
    x = k.Input((WIDTH,))
    left, right = (chain(k, None, None, build=build)(x) for build in (wired, stack))
    y = k.layers.Concatenate()([k.layers.BatchNormalization()(left), right])
    return k.Model(x, [k.layers.Dense(2, name="b")(y), k.layers.Dense(2, name="a")(y)])


def _of_two_inputs(k, *, shared=False):
    inputs = [k.Input((WIDTH,)) for _ in range(2)]
    inner = [wired(k, *dense(k, None), name=name) for name in ("func_a", "func_b")]
    inner = [inner[0]] * 2 if shared else inner
    return k.Model(inputs, [k.layers.Dense(2)(f(x)) for f, x in zip(inner, inputs, strict=True)])


def _with_a_registered_layer(k, first, *, embedded=False):
    """Whose ``compile`` is its own, in a model that begins with another layer."""
    layers = first(k), _classes(k).Block(), _classes(k).Block()
    shape = (1,) if embedded else (WIDTH,)
    return called(_classes(k).Stack([k.Input(shape), *layers]), np.zeros((1, *shape)))


def _layers_in_lists_of_a_layer(k):
    def parts():
        rows = [[k.layers.Dense(WIDTH), k.layers.LayerNormalization()] for _ in range(2)]
        return {"rows": rows, "out": {"x": (k.layers.Dense(WIDTH),)}}

    def call(self, x):
        for first, norm in self.rows:
            x = norm(first(x))
        return self.out["x"][0](x)

    cls = net(k.layers.Layer, parts, call, "Rows")
    return called(stack(k, cls(), cls(name="named"), k.layers.Dense(1)))


def _registered(name):
    return lambda k: getattr(_classes(k), name)


MODELS: dict[str, Build] = {
    **zoo.MODELS,
    "registered_in_sequential": lambda k: called(
        stack(k, _classes(k).Block(), _classes(k).Block(), k.layers.Dense(1))
    ),
    "registered_in_functional": lambda k: wired(
        k, _classes(k).Block(name="first_dense"), _classes(k).Block(name="second_dense")
    ),
    "registered_in_subclassed": lambda k: called(
        in_turn(k.Model, one=_registered("Block")(k), two=_registered("Block")(k))()
    ),
    "registered_in_list": lambda k: _held(k, lambda: [_classes(k).Block() for _ in range(3)]),
    "layers_as_arguments": lambda k: wired(
        k, _classes(k).Holder(k.layers.Dense(WIDTH)), _classes(k).Holder(_classes(k).Block())
    ),
    "registered_after_embedding": lambda k: _with_a_registered_layer(
        k, lambda k: k.layers.Embedding(4, 1), embedded=True
    ),
    "registered_after_subclassed": lambda k: _with_a_registered_layer(
        k, lambda k: in_turn(k.Model, one=_registered("Block")(k), two=_registered("Block")(k))()
    ),
    "own_saving": lambda k: called(stack(k, _classes(k).Own(), k.layers.Dense(1))),
    "own_saving_in_subclassed": lambda k: called(
        in_turn(k.Model, one=_classes(k).Own, two=lambda: _classes(k).Own(name="two"))()
    ),
    "silent_saving": lambda k: called(stack(k, _classes(k).Silent(), k.layers.Dense(1))),
    "subclassed_functional": lambda k: _classes(k).Functional(),
    "subclassed_sequential": lambda k: called(_classes(k).Stack(dense(k, None, None))),
    "nested_lists": lambda k: _held(k, lambda: [dense(k, None, None), dense(k, None, None)]),
    "nested_tuples": lambda k: _held(
        k, lambda: (tuple(dense(k, None, None)), tuple(dense(k, None, None)))
    ),
    "nested_dicts": lambda k: _held(
        k, lambda: {"block_b": dense(k, None, None), "block_a": dense(k, None, None)}
    ),
    "deeply_nested": lambda k: _held(k, lambda: [[[*dense(k, None, None)]], [dense(k, None)]]),
    "lists_and_layers": lambda k: _held(
        k, lambda: [*dense(k, None), dense(k, None), *dense(k, "chosen"), {"x": dense(k, None)}]
    ),
    "list_of_tuples": lambda k: _held(k, lambda: [(layer,) for layer in dense(k, *"abc")]),
    "lists_of_a_layer": _layers_in_lists_of_a_layer,
    "list_of_models": lambda k: _held(
        k, lambda: [chain(k, None, "x"), [chain(k, None, build=stack)]]
    ),
    "cyclic_list": _cyclic,
    "same_layer_twice": _twice,
    "reused_layer": lambda k: wired(k, *dense(k, None) * 2, *dense(k, None)),
    "nested_unnamed": _nested,
    "nested_named": lambda k: _nested(k, "encoder"),
    "nested_again": lambda k: _nested(k, again=True),
    "branches": _branches,
    "two_inputs": _of_two_inputs,
    "shared_by_two_inputs": lambda k: _of_two_inputs(k, shared=True),
    "wrapped": _wrapped,
    "frozen_first": lambda k: _frozen(chain(k, None, None, None), 1),
    "frozen_norm": lambda k: _frozen(
        stack(k, *dense(k, None), k.layers.BatchNormalization(), *dense(k, None)), 1
    ),
    "frozen_base": lambda k: _frozen(
        stack(k, chain(k, None, None, build=stack), k.layers.Dense(1)), 0
    ),
    "frozen_inside": lambda k: _frozen(
        stack(k, chain(k, None, None, None, build=stack), k.layers.Dense(1)), (0, 0)
    ),
    "frozen_inside_named": lambda k: _frozen(
        stack(k, chain(k, *"abc", build=stack), k.layers.Dense(1)), (0, 1)
    ),
    "frozen_forward": lambda k: _frozen_part(k, "forward_layer"),
    "frozen_backward": lambda k: _frozen_part(k, "backward_layer"),
    "frozen_blocks": _frozen_blocks,
    "frozen_wrapped": lambda k: _frozen(_wrapped(k), 0, 2),
    "tables": _tables,
    "preprocessed": _preprocessed,
    "normalized_by_constants": lambda k: stack(
        k, k.layers.Normalization(mean=[1.0] * WIDTH, variance=[2.0] * WIDTH), *dense(k, None)
    ),
    "scalar_first": _scalar_first,
    "called_model": lambda k: stack(
        k,
        *(k.layers.Dense(4, name="model"), k.layers.Dense(4, name="x")),
        k.layers.LayerNormalization(name="dense"),
        shape=(4,),
    ),
    "called_like_others": _called_like_others,
    "called_in_called": _called_in_called,
    "called_like_an_attribute": _called_like_an_attribute,
    "quantized_int8": _quantized("int8", _wide),
    "quantized_int4": _quantized("int4", _wide),
    "quantized_float8": _quantized("float8", _wide),
    "quantized_einsum": _quantized("int8", einsum),
    "quantized_einsum_int4": _quantized("int4", einsum),
    "quantized_embedding": _quantized("int8", embedded),
    "quantized_attention": _quantized("int8", attended),
    "quantized_subclassed": _quantized(
        "int8", lambda k: called(in_turn(k.Model, a=lambda: k.layers.Dense(6))(), np.ones((1, 8)))
    ),
}
ONLY_KERAS_3 = {
    "cyclic_list",
    *zoo.KERAS_3,
    *(name for name in MODELS if name.startswith("quantized_")),
}
# What a ``tf.Module`` has is in none of Keras's files; LoRA's factors are merged in them.
NOT_WRITTEN = {"low_rank", "module_in_layer"}
OWN_WRITING = {"own_saving", "own_saving_in_subclassed", "silent_saving"}
_OWN_WRITER = "its layer writes its values itself"
_AS_FROZEN_NOW = "optimizer: {slots: restore}"
STATES = ("plain", "trained", "compiled")


class Case(NamedTuple):
    """A model, of one flavour: as it is, with a trained optimizer, or before its first step."""

    flavour: str
    model: str
    state: str

    def __str__(self) -> str:
        return " ".join(self)

    @property
    def allowed(self) -> set[str]:
        """The cells that are as they should be."""
        own = self.model in OWN_WRITING
        frozen = self.model.startswith("frozen_") and self.state == "trained"
        return {RIGHT, NEVER, LOST} | ({SAID} if own or frozen else set())


def cases() -> dict[Case, bool]:
    """All, and whether each is usual: a model has one state and flavour, in turn.

    Both flavours, where they tell differently what was frozen, or what a layer wrote itself.
    """
    found = {}
    names = [name for name in MODELS if name not in NOT_WRITTEN]
    for at, name in enumerate(names):
        states = STATES[:1] if name.startswith("quantized_") else STATES  # Keras trains none
        flavours = FLAVOURS[:1] if name in ONLY_KERAS_3 else FLAVOURS
        both = name.startswith("frozen_") or name in OWN_WRITING
        for shift, flavour in enumerate(flavours):
            state = (
                states[(at + shift) % len(states)] if both or shift == at % len(flavours) else ""
            )
            found |= {Case(flavour, name, each): each == state for each in states}
    return found


def _made(case: Case, seed: int) -> Any:
    k = importlib.import_module(case.flavour)
    model = MODELS[case.model](k)
    if case.state != "plain":
        model.compile(k.optimizers.Adam(), "mse")
    if case.state == "trained":
        model.optimizer.build(model.trainable_variables)
    return _filled(model, seed)


def _filled(model: Any, seed: int) -> Any:
    fill(seed, model)
    for variable in variables(model):
        if "g_idx" in variable.name:  # int4's groups
            variable.assign(np.zeros(variable.shape))
    optimizer = getattr(model, "optimizer", None)
    if optimizer is not None and len(variables(optimizer)) > 2:  # it has trained
        fill(seed, optimizer)
    return model


def _written(model: Any, kind: str, folder: Path, k: Any) -> str:
    """The path of a file of this kind; raises where Keras has none of such a model."""
    path = str(folder / f"model{'.h5' if kind == 'weights.h5' else kind}")
    if kind in (".keras", ".h5"):
        model.save(path)
    elif kind == "directory":
        model.save(str(folder / "zipped.keras"))
        path = str(folder / "unzipped")
        with zipfile.ZipFile(folder / "zipped.keras") as archive:
            archive.extractall(path)
    elif kind == ".weights.json":
        if k.__name__ != "keras":
            raise ValueError("tf_keras writes no shards")
        model.save_weights(path, max_shard_size=1e-6)
    else:
        if kind == "weights.h5" and k.__name__ == "keras":
            raise ValueError("Keras 3 writes no such file")
        model.save_weights(path)
    return path


def _vocabularies(model: Any) -> list[Any]:
    layers = model._flatten_layers()
    return [each.get_vocabulary() for each in layers if hasattr(each, "get_vocabulary")]


def judge(case: Case, kinds: Sequence[str] = KINDS) -> dict[str, tuple[str, str]]:
    """What each kind of file becomes, and the error or the value."""
    k = importlib.import_module(case.flavour)
    written, loaded, restored = (_made(case, seed) for seed in (1, 2, 3))
    found = {}
    for kind in kinds:
        folder = Path(tempfile.mkdtemp())
        try:
            path = _written(written, kind, folder, k)
            own = read(_filled(loaded, 2))
            loaded.load_weights(str(folder / "zipped.keras") if kind == "directory" else path)
        except Exception as error:  # whatever Keras raises
            found[kind] = NEVER, f"{type(error).__name__}: {error}"
        else:
            expected = [
                value if value.tobytes() != before.tobytes() else None  # the file does not have it
                for value, before in zip(read(loaded), own, strict=True)
            ]
            found[kind] = _compared(path, written, expected, _filled(restored, 3))
        finally:
            shutil.rmtree(folder)
    return found


def _compared(
    path: str, written: Any, expected: Any, restored: Any, **keys: Any
) -> tuple[str, str]:
    try:
        tfckpt.restore(path, restored, **keys)
    except TfckptError as error:
        if _AS_FROZEN_NOW in " ".join(str(error).split()) and not keys:
            settled = _compared(path, written, expected, restored, optimizer={"slots": "restore"})
            return (SAID, str(error)) if settled[0] == RIGHT else settled
        if _OWN_WRITER in " ".join(str(error).split()):
            return SAID, str(error)
        weights = zip(variables(restored), expected, strict=True)
        lost = any(value is None and one.dtype == "float32" for one, value in weights)
        return (LOST if lost else REFUSED), str(error)
    pairs = [*zip(variables(restored), expected, strict=True)]
    optimizer = getattr(restored, "optimizer", None)
    if optimizer is not None and _has_optimizer(path):  # Keras loads it with the whole model alone
        both = variables(optimizer), read(written.optimizer)
        if [len(each) for each in both] != [len(both[1])] * 2:
            return WRONG, "another optimizer"
        pairs += zip(*both, strict=True)
    for one, value in pairs:
        if value is not None and np.asarray(one).tobytes() != value.tobytes():
            return WRONG, one.path if hasattr(one, "path") else one.name
    if path.endswith(".keras") and _vocabularies(restored) != _vocabularies(written):
        return WRONG, "a vocabulary"
    return RIGHT, ""


def _has_optimizer(path: str) -> bool:
    return any(name.startswith("optimizer/") for name in tfckpt.inspect(path).inventory.entries)
