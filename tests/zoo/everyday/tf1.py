"""The table of TF1's files: real ones, and those of programs as people wrote them, into Keras.

``python -m zoo.everyday tf1`` prints it. A file knows names alone; a model is what a person writes
for it: with the names of the file, with names of its own, or with those that Keras gives.
``holds`` says which variables of the file are a layer's, in the order of Keras; a word that ends
in ``/`` is the scope of those that follow it.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from zoo.corpus import prefix_of
from zoo.everyday.judge import FIRST, FLAVOURS, PASTED, REFUSED, Measured, Row, judged
from zoo.everyday.programs import Make, Program, of_model
from zoo.everyday.writers import Call, everything, restore
from zoo.graphs import save, v1
from zoo.models import net
from zoo.pairs.build import start_anew

Layer = Callable[..., Any]
ADAM, MOMENTUM = ("Adam", "Adam_1"), ("Momentum",)
AVERAGE, RMS = ("ExponentialMovingAverage",), ("RMSProp", "RMSProp_1")
STEP: Mapping[str, tuple[int, ...]] = {"global_step": ()}
POWERS: Mapping[str, tuple[int, ...]] = {"beta1_power": (), "beta2_power": (), **STEP}


@dataclass(frozen=True)
class File:
    """A file of TF1, and the model that a person writes for it."""

    make: Make
    holds: Mapping[str, str] = field(default_factory=dict)  # part → its variables in the file
    slots: tuple[str, ...] = ()  # of each trainable variable
    more: Mapping[str, tuple[int, ...]] = field(default_factory=dict)  # name → shape
    parted: str = ""  # of which variable the file has parts
    corpus: str = ""  # a real file
    names: Callable[[str], str] = str  # what the program called them in the file
    call: Call = restore
    should: str = PASTED
    lost: str = ""  # what stays new though the file has it
    today: tuple[()] | tuple[str, str] = ()

    @property
    def expected(self) -> str:
        return self.today[0] if self.today else self.should

    @property
    def flavours(self) -> tuple[str, ...]:
        return FLAVOURS


def measure(file: File, k: Any) -> Measured:
    """Restore as a person would, and judge it by the values."""
    keys = {
        f"{part}/{at}": key
        for part, text in file.holds.items()
        for at, key in enumerate(_keys(text))
    }
    path, stored = _real(file.corpus) if file.corpus else _written(file, k, keys)
    values = {name: stored[key] for name, key in keys.items()}
    return judged(Row(file.make, call=file.call), path, values, k)


def without_thinking(cells: Mapping[tuple[str, str], str]) -> float:
    """The share of those that need no answer, of cells by name and flavour."""
    whole = [c in (FIRST, PASTED) and not FILES[name].lost for (name, _), c in cells.items()]
    return sum(whole) / len(whole)


def _keys(text: str) -> list[str]:
    scope, found = "", []
    for word in text.split():
        scope = word if word.endswith("/") else scope
        found += [scope + word] if scope != word else []
    return found


def _real(name: str) -> tuple[str, Mapping[str, Any]]:
    reader = tf.train.load_checkpoint(prefix_of(name))
    return prefix_of(name), {n: reader.get_tensor(n) for n in reader.get_variable_to_shape_map()}


_PLACE = tempfile.TemporaryDirectory(prefix="tf1")


def _written(file: File, k: Any, keys: Mapping[str, str]) -> tuple[str, Mapping[str, Any]]:
    start_anew(k)
    weights = file.make(k).weights()
    known = {key: tuple(weights[name].shape) for name, key in keys.items() if name in weights}
    trained = {key: shape for key, shape in known.items() if "moving_" not in key}
    slots = {f"{key}/{slot}": trained[key] for key in trained for slot in file.slots}

    def build() -> None:
        for key, shape in {**known, **slots, **file.more}.items():
            parts = v1.fixed_size_partitioner(2) if key == file.parted else None
            kind = tf.int64 if key.endswith("global_step") else tf.float32
            v1.get_variable(key, shape, kind, partitioner=parts, initializer=tf.zeros)

    saved = save(Path(tempfile.mkdtemp(dir=_PLACE.name)) / "model.ckpt-7", build, names=file.names)
    values = {key.removesuffix(":0"): value for key, value in saved.values.items()}
    if file.parted:
        halves = [values[f"{file.parted}/part_{n}"] for n in (0, 1)]
        values[file.parted] = np.concatenate(halves)
    return saved.path, values


# Models: chains of layers by what they mean


def dense(units: int) -> Layer:
    return lambda k, **how: k.layers.Dense(units, **how)


def conv(filters: int, **more: Any) -> Layer:
    return lambda k, **how: k.layers.Conv2D(filters, 3, **more, **how)


def norm(**more: Any) -> Layer:
    return lambda k, **how: k.layers.BatchNormalization(**more, **how)


def layer(kind: str, *sizes: Any, **more: Any) -> Layer:
    return lambda k, **how: getattr(k.layers, kind)(*sizes, **more, **how)


FLAT, POOL = layer("Flatten"), layer("GlobalAveragePooling2D")
IMAGE, ROW, WORDS = (8, 8, 1), (4,), (6,)
OWN, KERAS = "own", "keras"  # names: of the file (the part's), a person's own ones, or Keras's


def chain(
    shape: tuple[int, ...], /, names: str = "", optimizer: Any = None, **parts: Layer
) -> Make:
    def make(k: Any) -> Program:
        called = {name: {} if names == KERAS else {"name": name} for name in parts}
        if names == OWN:
            called = {name: {"name": f"my_{chr(97 + n)}"} for n, name in enumerate(parts)}
        made = {name: part(k, **called[name]) for name, part in parts.items()}
        model = k.Sequential([k.Input(shape), *made.values()])
        return of_model(k, model, {n: x for n, x in made.items() if x.weights}, optimizer)

    return make


def several(**models: Make) -> Make:
    """Models by keyword."""

    def make(k: Any) -> Program:
        made = {name: model(k) for name, model in models.items()}
        parts = {f"{name} {n}": p for name, x in made.items() for n, p in x.parts.items()}
        return Program({name: each.model for name, each in made.items()}, parts)

    return make


def neurocore(k: Any) -> Program:
    """Layers with normalized weights in lists, and scales, as attributes with the file's names."""
    parts, held = {}, {}
    for name, (first, *sizes) in NEURO.items():
        held[name] = []
        for at, (rows, columns) in enumerate(zip((first, *sizes), sizes, strict=False)):
            made = k.layers.Layer()
            for word, shape in (("w", (rows, columns)), ("b", (columns,)), ("g", (1, columns))):
                setattr(made, word, made.add_weight(name=word, shape=shape))
            made.built = True
            held[name] += [made]
            parts[f"{name}{at}"] = made
    for name in SCALES:
        held[name] = parts[name] = k.Variable(0.0) if k.__name__ == "keras" else tf.Variable(0.0)
    model = net(k.Model, lambda: held, lambda self, x: x)()
    model.built = True
    return Program({"model": model}, parts)


NEURO = {"C_score": (80, 80, 80, 80, 1), "C_u": (160, 80, 80), "L_u": (240, 80, 80)}
NEURO |= {"V_score": (160, 80, 80, 80, 1)}
SCALES = ("CL_scale", "C_init_scale", "LC_scale", "L_init_scale")


def cadrl(k: Any) -> Program:
    """The network's Dense layers."""
    widths = {"layer1": 256, "layer2": 256, "fullyconnected1": 256, "logits_p": 11, "logits_v": 1}
    parts = {x: k.layers.Dense(n, name=x) for x, n in widths.items()}
    x = y = k.Input((68,))
    for name in ("layer1", "layer2", "fullyconnected1"):
        y = parts[name](y)
    return Program({"model": k.Model(x, [parts[n](y) for n in ("logits_p", "logits_v")])}, parts)


THREE = {"hidden1": dense(5), "hidden2": dense(5), "logits": dense(3)}
CNN = {"conv1": conv(2), "norm1": norm(), "conv2": conv(3), "norm2": norm(), "pool": POOL}
CNN |= {"head": dense(3)}
KERNEL, SLIM, MOVING = "kernel bias", "weights biases", "moving_mean moving_variance"
LAYERS_API = {
    "conv1": "conv2d/ kernel bias",
    "norm1": f"batch_normalization/ gamma beta {MOVING}",
    "conv2": "conv2d_1/ kernel bias",
    "norm2": f"batch_normalization_1/ gamma beta {MOVING}",
    "head": "dense/ kernel bias",
}
SLIM_CNN = {"conv1": conv(2, use_bias=False), "conv1_bn": norm(scale=False)}
SLIM_CNN |= {"conv2": conv(3, use_bias=False), "conv2_bn": norm(scale=False), "pool": POOL}
SLIM_CNN |= {"logits": dense(3)}
SLIM_HOLDS = {
    "conv1": "net/conv1/weights",
    "conv1_bn": f"net/conv1/BatchNorm/ beta {MOVING}",
    "conv2": "net/conv2/weights",
    "conv2_bn": f"net/conv2/BatchNorm/ beta {MOVING}",
    "logits": "net/logits/ weights biases",
}
MOBILE = {"conv": conv(2, use_bias=False), "conv_bn": norm()}
MOBILE |= {"dw": layer("DepthwiseConv2D", 3, use_bias=False), "dw_bn": norm()}
MOBILE |= {"pw": layer("Conv2D", 4, 1, use_bias=False), "pw_bn": norm(), "pool": POOL}
MOBILE |= {"logits": dense(3)}
MOBILE_SCOPES = {"conv": "Conv2d_0", "dw": "Conv2d_1_depthwise", "pw": "Conv2d_1_pointwise"}
MOBILE_HOLDS = {
    **{n: f"MobilenetV1/{s}/{'depthwise_' * (n == 'dw')}weights" for n, s in MOBILE_SCOPES.items()},
    **{
        f"{n}_bn": f"MobilenetV1/{s}/BatchNorm/ gamma beta {MOVING}"
        for n, s in MOBILE_SCOPES.items()
    },
    "logits": f"MobilenetV1/Logits/fc/ {SLIM}",
}


def scoped(text: str, *parts: str, words: str = KERNEL) -> dict[str, str]:
    """Each part in a scope of its name, ``{}`` in the text, or of its number, ``#``."""
    found = {}
    for n, part in enumerate(parts):
        number = f"_{n}" if n else ""
        found[part] = f"{text.format(part).replace('#', number).replace('@', str(n))}/ {words}"
    return found


OF_THREE = ("hidden1", "hidden2", "logits")
DNN = {f"layer{n}": dense(size) for n, size in enumerate((100, 70, 48, 34))} | {"logits": dense(1)}
DNN_HOLDS = scoped("dnn/hiddenlayer_@", *(f"layer{n}" for n in range(4)))
DNN_HOLDS |= {"logits": "dnn/logits/ kernel bias"}
MIDAS = {f"layer{n}": dense(size) for n, size in enumerate((256, 256, 256, 108))}
SONNET = {"conv1": layer("Conv2D", 16, 8, 4), "conv2": layer("Conv2D", 32, 4, 2), "flat": FLAT}
SONNET |= {"linear": dense(256)}
WORDY = {"words": layer("Embedding", 9, 4), "flat": FLAT, "head": dense(2)}
CELL = {"rnn": layer("LSTM", 3), "head": dense(2)}
ONE_KERNEL = "TF1's cells have one kernel of inputs and state, its gates in another order"
GATES = "rnn/basic_lstm_cell/kernel", "rnn/basic_lstm_cell/bias"


OWN_FILES: Mapping[str, File] = {
    "tf.layers": File(chain(IMAGE, KERAS, **CNN), LAYERS_API, should=FIRST),
    "tf.layers, Adam": File(
        chain(IMAGE, KERAS, "adam", **CNN), LAYERS_API, ADAM, POWERS, should=FIRST
    ),
    "tf.layers in a scope, Momentum": File(
        chain(ROW, KERAS, **THREE), scoped("net/dense#", *OF_THREE), MOMENTUM, STEP
    ),
    "tf.layers, named": File(chain(ROW, **THREE), scoped("{}", *OF_THREE), RMS, STEP, should=FIRST),
    "the same, names of one's own": File(
        chain(ROW, OWN, **THREE), scoped("{}", *OF_THREE), ADAM, POWERS
    ),
    "hidden1/weights": File(chain(ROW, **THREE), scoped("{}", *OF_THREE, words=SLIM)),
    "hidden1/weights, Keras's names": File(
        chain(ROW, KERAS, **THREE), scoped("{}", *OF_THREE, words=SLIM), AVERAGE, STEP
    ),
    "slim, BatchNorm": File(chain(IMAGE, **SLIM_CNN), SLIM_HOLDS, MOMENTUM, STEP),
    "slim, BatchNorm, Keras's names": File(chain(IMAGE, KERAS, **SLIM_CNN), SLIM_HOLDS),
    "slim, MobileNet": File(chain(IMAGE, **MOBILE), MOBILE_HOLDS, (*RMS, *AVERAGE), STEP),
    "W1, b1": File(
        chain(ROW, KERAS, **THREE), {p: f"W{n} b{n}" for n, p in enumerate(OF_THREE, 1)}
    ),
    "an embedding in parts": File(
        chain(WORDS, **WORDY),
        {"words": "words/embeddings", "head": "head/ kernel bias"},
        parted="words/embeddings",
        should=FIRST,
    ),
    "SeparableConv2D": File(
        chain(IMAGE, KERAS, conv=layer("SeparableConv2D", 2, 3), pool=POOL, head=dense(2)),
        {
            "conv": "separable_conv2d/ depthwise_kernel pointwise_kernel bias",
            "head": "dense/ kernel bias",
        },
        ADAM,
        should=FIRST,
    ),
    "keys that end in :0": File(
        chain(ROW, **THREE),
        scoped("{}", *OF_THREE),
        ADAM,
        POWERS,
        names=lambda n: f"{n}:0",
        should=FIRST,
    ),
    "GAN": File(
        several(generator=chain(ROW, KERAS, a=dense(4)), critic=chain(ROW, KERAS, a=dense(1))),
        {f"{name} a": f"{name}/dense/ kernel bias" for name in ("generator", "critic")},
        ADAM,
        POWERS,
        call=everything,
        should=FIRST,
    ),
    "one of two networks": File(
        chain(ROW, KERAS, **THREE),
        scoped("main/dense#", *OF_THREE),
        more={
            f"target/dense{n}/{w}": shape
            for n, size in (("", (4, 5)), ("_1", (5, 5)), ("_2", (5, 3)))
            for w, shape in (("kernel", size), ("bias", size[1:]))
        },
        should=REFUSED,
    ),
    "more classes": File(
        chain(ROW, hidden1=dense(5), hidden2=dense(5), logits=dense(9)),
        scoped("{}", *OF_THREE[:2]),
        ADAM,
        {"logits/kernel": (5, 3), "logits/bias": (3,), **POWERS},
    ),
    "an LSTM cell": File(
        chain((5, 2), **CELL),
        {"head": "head/ kernel bias"},
        more={GATES[0]: (5, 12), GATES[1]: (12,)},
        lost=ONE_KERNEL,
    ),
}
CADRL_HOLDS = scoped("{}", "layer1", "layer2", "fullyconnected1", "logits_p", "logits_v")
CADRL_HOLDS = {part: re.sub(r"(kernel|bias)", r"\1:0", text) for part, text in CADRL_HOLDS.items()}
REAL: Mapping[str, File] = {
    "CADRL": File(cadrl, CADRL_HOLDS, corpus="tf1_cadrl_iros18"),
    "NeuroCore": File(
        neurocore,
        {
            **{
                f"{name}{n}": f"{name}/{n}/ w b g"
                for name, sizes in NEURO.items()
                for n in range(len(sizes) - 1)
            },
            **{name: name for name in SCALES},
        },
        corpus="tf1_neurocore",
        should=FIRST,
    ),
    "MIDAS, Keras's names": File(
        chain((108,), KERAS, **MIDAS),
        {f"layer{n}": f"Variable{f'_{2 * n}' * (n > 0)} Variable_{2 * n + 1}" for n in range(4)},
        corpus="tf1_midas_adamw",
    ),
    "TFX, Keras's names": File(
        chain((3,), KERAS, **DNN), DNN_HOLDS, corpus="tf1_tfx_est_2019_2shard"
    ),
    "Sonnet's agent": File(
        chain((84, 84, 3), KERAS, **SONNET),
        {
            **{f"conv{n + 1}": f"agent/conv_net_2d/conv_2d_{n}/ w b" for n in (0, 1)},
            "linear": "agent/linear_0/ w b",
        },
        corpus="tf1_sonnet_restore_init",
    ),
}
FILES: Mapping[str, File] = {**OWN_FILES, **REAL}
