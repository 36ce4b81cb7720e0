"""The restores of the table, and what should come of each."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import tensorflow as tf

import tfckpt
from zoo.everyday import programs as of
from zoo.everyday import writers as by
from zoo.everyday.judge import PASTED, Row

if TYPE_CHECKING:
    from collections.abc import Mapping

KERAS3, LEGACY = ("keras",), ("tf_keras",)
ALL = ("all",)
OPTIMIZER = "optimizer"  # what must be said of one that only one side has


def wide(*layers: str, **options: Any) -> of.Make:
    """A stack whose layers are all named."""
    return of.stack(*layers, named=ALL, **options)


def stack_of(*layers: str, **options: Any) -> of.Make:
    """Without an optimizer."""
    return of.stack(*layers, optimizer=None, **options)


IMAGES = partial(of.images, optimizer=None)

# The same program again.
AGAIN: Mapping[str, Row] = {
    "sequential": Row(of.stack(), of.stack(built=False)),
    "functional": Row(of.stack(shape="functional")),
    "subclassed": Row(of.stack(shape="subclassed")),
    "list of layers": Row(of.stack(shape="listed")),
    "dict of layers": Row(of.stack(shape="keyed")),
    "nested": Row(of.stack(shape="nested")),
    "custom layer": Row(of.stack(shape="custom")),
    "weights of its own": Row(of.own_weights),
    "dropout": Row(of.stack("dense1", "drop1", "dense2", "drop2", "head")),
    "images": Row(of.images),
    "text": Row(of.text),
    "shared layer": Row(of.shared),
    "towers": Row(of.towers(named=False)),
    "SGD": Row(of.stack(optimizer=of.sgd), of.stack(optimizer=of.sgd, built=False)),
    "amsgrad": Row(of.stack(optimizer=of.amsgrad)),
    "use_ema": Row(of.stack(optimizer=of.averaged)),
    "accumulation": Row(of.stack(optimizer=of.accumulating), flavours=KERAS3),
    "loss scale": Row(of.stack(optimizer=of.scaled)),
    "frozen": Row(of.stack(frozen=("dense1", "dense2"))),
    "module": Row(of.module(), flavours=KERAS3),
    "two optimizers": Row(of.gan(), call=by.everything),
    "TensorFlow, Sequential": Row(of.stack(), of.stack(built=False), by.by_tensorflow),
    "TensorFlow, subclassed": Row(of.stack(shape="subclassed"), save=by.by_tensorflow),
    "TensorFlow, list": Row(of.stack(shape="listed"), save=by.by_tensorflow, flavours=LEGACY),
    "TensorFlow, images": Row(of.images, save=by.by_tensorflow),
    "TensorFlow, module": Row(of.module(), save=by.by_tensorflow, flavours=KERAS3),
    "assert_consumed": Row(of.stack(), save=by.by_tensorflow, call=by.consumed),
    "manager": Row(of.stack(), save=by.by_manager(tfckpt), call=by.of_manager),
    "TensorFlow's manager": Row(of.stack(), save=by.by_manager(tf), call=by.of_manager),
}

# What is no program of Keras's `fit` alone.
LOOPS: Mapping[str, Row] = {
    "loop": Row(of.loop("step"), call=by.everything),
    "loop, drop-in": Row(of.loop("step", "epoch"), call=by.drop_in),
    "loop by TensorFlow": Row(of.loop("step"), save=by.by_tensorflow, call=by.everything),
    "loop, iterator": Row(of.loop("step", "data"), call=by.everything),
    "epoch added": Row(of.loop("step"), of.loop("step", "epoch"), call=by.everything, left="epoch"),
    "step not asked for": Row(of.loop("step"), of.loop(), call=by.everything, left="step"),
    "model alone of a loop": Row(of.loop("step"), of.loop(optimizer=False), left=OPTIMIZER),
    "the same, by TensorFlow": Row(
        of.loop("step"), of.loop(optimizer=False), by.by_tensorflow, left=OPTIMIZER
    ),
    "iterator not asked for": Row(
        of.loop("step", "data"),
        of.loop("step"),
        call=by.everything,
        left="data",
    ),
    "iterator added": Row(
        of.loop("step"), of.loop("step", "data"), call=by.everything, left="data"
    ),
    "optimizer added": Row(
        of.loop("step", optimizer=False), of.loop("step"), call=by.everything, left=OPTIMIZER
    ),
    "another keyword": Row(
        of.loop("step", keyword="net"), of.loop("step"), by.by_tensorflow, by.everything
    ),
    "saved as the root": Row(stack_of(), save=by.as_root),
    "written without a number": Row(stack_of(), save=by.written),
    "from a directory": Row(of.loop("step"), save=by.by_manager(tf), call=by.everything),
    "module and step": Row(of.module(step=True), of.module(), left="step", flavours=KERAS3),
    "module grown": Row(
        of.module(), of.module(more=True), left="bonus", should=PASTED, flavours=KERAS3
    ),
    "module, another head": Row(
        of.module(), of.module(out=4), should=PASTED, stays=("main",), flavours=KERAS3
    ),
    "GAN, not compiled": Row(of.gan(), of.gan(optimizers=False), call=by.everything, left="optim"),
    "generator alone": Row(
        of.gan(),
        of.gan("generator", optimizers=False),
        by.by_tensorflow,
        by.everything,
        should=PASTED,
        left="discriminator",
    ),
    "a run, elsewhere": Row(of.stack(), save=by.by_run, call=by.by_config),
    "a run, without optimizer": Row(
        of.stack(), stack_of(), by.by_run, by.by_config, left=OPTIMIZER
    ),
    "weights into a run": Row(stack_of(), of.stack(), by.written, by.by_config, left=OPTIMIZER),
}

# Compiled in another way than when it was saved.
COMPILED: Mapping[str, Row] = {
    "weights into compiled": Row(stack_of(), of.stack(built=False), left=OPTIMIZER),
    "compiled into weights": Row(of.stack(), stack_of(), left=OPTIMIZER),
    "TF weights, compiled": Row(
        stack_of(), of.stack(built=False), by.by_tensorflow, left=OPTIMIZER
    ),
    "TF compiled, weights": Row(of.stack(), stack_of(), by.by_tensorflow, left=OPTIMIZER),
    "drop-in, compiled": Row(stack_of(), of.stack(), call=by.drop_in),
    "images, not compiled": Row(of.images, IMAGES, left=OPTIMIZER),
    "subclassed, compiled": Row(
        stack_of(shape="subclassed"), of.stack(shape="subclassed"), left=OPTIMIZER
    ),
    "metrics added": Row(of.stack(), of.stack(metrics=["mae", "mse"])),
    "metrics gone": Row(of.stack(metrics=["mae"]), of.stack()),
    "another rate": Row(of.stack(), of.stack(optimizer=of.faster), left="learning_rate"),
    "Adam, now SGD": Row(of.stack(), of.stack(optimizer=of.sgd), should=PASTED),
    "SGD, now Adam": Row(of.stack(optimizer=of.sgd), of.stack(), should=PASTED),
    "Adam, now AdamW": Row(of.stack(), of.stack(optimizer=of.adamw)),
    "momentum gone": Row(of.stack(optimizer=of.sgd), of.stack(optimizer=of.plain_sgd)),
    "use_ema added": Row(of.stack(), of.stack(optimizer=of.averaged), left="restored weights"),
    "use_ema gone": Row(of.stack(optimizer=of.averaged), of.stack(), left=OPTIMIZER),
    "amsgrad added": Row(of.stack(), of.stack(optimizer=of.amsgrad), left="no such slot"),
    "accumulation added": Row(
        of.stack(), of.stack(optimizer=of.accumulating), should=PASTED, flavours=KERAS3
    ),
    "accumulation gone": Row(
        of.stack(optimizer=of.accumulating), of.stack(), should=PASTED, flavours=KERAS3
    ),
    "amsgrad gone": Row(of.stack(optimizer=of.amsgrad), of.stack(), left="no such slot"),
    "use_ema, weights alone": Row(
        stack_of(), of.stack(optimizer=of.averaged), left="restored weights"
    ),
    "TF, use_ema added": Row(
        of.stack(), of.stack(optimizer=of.averaged), by.by_tensorflow, left="restored weights"
    ),
    "loss scale gone": Row(of.stack(optimizer=of.scaled), of.stack(), left="scale"),
    "unfrozen": Row(of.stack(frozen=("dense1", "dense2")), of.stack(), left="was not trained"),
    "frozen since": Row(of.stack(), of.stack(frozen=("dense1", "dense2")), left="not trained"),
}

# The layers were edited.
EDITED: Mapping[str, Row] = {
    "Dropout added": Row(of.stack(), of.stack("dense1", "drop1", "dense2", "head")),
    "Dropout gone": Row(of.stack("dense1", "drop1", "dense2", "head"), of.stack()),
    "second Dropout": Row(
        wide("dense1", "drop1", "dense2", "head"),
        wide("dense1", "drop1", "dense2", "drop2", "head"),
        left="drop2",
        flavours=KERAS3,
    ),
    "another activation": Row(of.stack(), of.stack(activation="tanh")),
    "TF, Dropout added": Row(
        of.stack(), of.stack("dense1", "drop1", "dense2", "head"), by.by_tensorflow
    ),
    "more classes": Row(
        stack_of(head="head"), stack_of(head="head", classes=5), should=PASTED, stays=("head",)
    ),
    "more classes, compiled": Row(
        of.stack(head="head"), of.stack(head="head", classes=5), should=PASTED, stays=("head",)
    ),
    "another head": Row(
        stack_of(head="head"),
        of.meaning(stack_of(head="flowers", classes=5), head="flowers"),
        should=PASTED,
    ),
    "a named layer inserted": Row(
        stack_of("dense1", "head", head="head"),
        stack_of("dense1", "scale1", "head", named=("scale1",), head="head"),
        should=PASTED,
    ),
    "BatchNormalization added": Row(
        stack_of(), stack_of("dense1", "norm1", "dense2", "head"), should=PASTED
    ),
    "a layer renamed": Row(
        stack_of(hidden=4, head="old"), stack_of(hidden=4, head="new"), should=PASTED
    ),
    "two renamed": Row(
        of.two_heads("digits", "boxes"),
        of.meaning(of.two_heads("numbers", "places"), numbers="digits", places="boxes"),
        should=PASTED,
    ),
    "a head more": Row(of.two_heads("digits"), of.two_heads("digits", "boxes"), should=PASTED),
    "a head less": Row(of.two_heads("digits", "boxes"), of.two_heads("digits"), should=PASTED),
    "a tower less": Row(of.towers("left", "right"), of.towers("left"), should=PASTED),
    "a named layer appended": Row(
        stack_of("dense1", "dense2"),
        stack_of("dense1", "dense2", "head", head="head"),
        should=PASTED,
    ),
    "a layer appended": Row(
        stack_of("dense1", "dense2"), stack_of("dense1", "dense2", "dense3"), should=PASTED
    ),
    "encoder alone": Row(of.encoder_decoder, of.encoder_alone, should=PASTED),
}

# Files of Keras and of TensorFlow.
FILES: Mapping[str, Row] = {
    ".weights.h5": Row(stack_of(), save=by.weights("m.weights.h5")),
    ".weights.h5, compiled": Row(of.stack(), save=by.weights("m.weights.h5")),
    ".weights.h5, not compiled": Row(
        of.stack(), stack_of(), by.weights("m.weights.h5"), left=OPTIMIZER
    ),
    ".weights.h5 into compiled": Row(
        stack_of(), of.stack(), by.weights("m.weights.h5"), left=OPTIMIZER
    ),
    ".weights.h5, subclassed": Row(stack_of(shape="subclassed"), save=by.weights("m.weights.h5")),
    ".weights.h5, nested": Row(stack_of(shape="nested"), save=by.weights("m.weights.h5")),
    ".weights.h5, images": Row(IMAGES, save=by.weights("m.weights.h5")),
    ".weights.h5, more classes": Row(
        stack_of(head="head"),
        stack_of(head="head", classes=5),
        by.weights("m.weights.h5"),
        should=PASTED,
        stays=("head",),
    ),
    ".weights.h5, Dropout added": Row(
        stack_of(), stack_of("dense1", "drop1", "dense2", "head"), by.weights("m.weights.h5")
    ),
    ".keras": Row(of.stack(), save=by.whole("m.keras")),
    ".keras, functional": Row(of.stack(shape="functional"), save=by.whole("m.keras")),
    ".keras, not compiled": Row(of.stack(), stack_of(), by.whole("m.keras"), left=OPTIMIZER),
    ".keras into compiled": Row(stack_of(), of.stack(), by.whole("m.keras"), left=OPTIMIZER),
    ".keras, more classes": Row(
        stack_of(head="head"),
        stack_of(head="head", classes=5),
        by.whole("m.keras"),
        should=PASTED,
        stays=("head",),
    ),
    ".h5": Row(of.stack(), save=by.whole("m.h5")),
    ".h5, not compiled": Row(of.stack(), stack_of(), by.whole("m.h5"), left=OPTIMIZER),
    ".h5 into compiled": Row(stack_of(), of.stack(), by.whole("m.h5"), left=OPTIMIZER),
    "weights as .h5": Row(stack_of(), save=by.weights("m.h5"), flavours=LEGACY),
    "TF format": Row(of.stack(), save=by.weights("m"), flavours=LEGACY),
    "TF format, not compiled": Row(
        of.stack(), stack_of(), by.weights("m"), left=OPTIMIZER, flavours=LEGACY
    ),
    "ModelCheckpoint, weights": Row(
        of.stack(),
        save=by.by_callback("{epoch:02d}.weights.h5", save_weights_only=True),
    ),
    "ModelCheckpoint, .keras": Row(
        of.stack(), stack_of(), by.by_callback("{epoch:02d}.keras"), left=OPTIMIZER
    ),
    "ModelCheckpoint, TF": Row(
        of.stack(),
        save=by.by_callback("cp-{epoch:02d}", save_weights_only=True),
        flavours=LEGACY,
    ),
    "SavedModel": Row(stack_of(shape="functional"), save=by.exported),
    "SavedModel of a module": Row(
        of.module(), save=by.saved_module, should=PASTED, flavours=KERAS3
    ),
    "TF1, scopes": Row(
        of.stack("dense1", "head", named=ALL, optimizer=None),
        save=by.by_saver("dense1", "dense1", "head", "head"),
    ),
    "TF1 with slots": Row(
        of.stack("dense1", "head", named=ALL, optimizer=None),
        save=by.by_saver("dense1", "dense1", "head", "head", slots=True),
        left=OPTIMIZER,
    ),
    "copied": Row(of.stack(), save=by.copied("best")),
    "copied, drop-in": Row(of.stack(), save=by.copied("best"), call=by.drop_in),
    "renamed": Row(of.stack(), save=by.copied("final-3", move=True)),
    "moved": Row(of.stack(), save=by.copied("kept/ckpt-1", move=True)),
    "copied without its record": Row(of.stack(), save=by.copied("best", record=False)),
    "TensorFlow wrote over it": Row(
        of.stack(), save=by.over("best", by.at("best", tfckpt), by.at("best", tf))
    ),
    "over it, drop-in": Row(
        of.loop("step"),
        save=by.over("best", by.at("best", tfckpt), by.at("best", tf)),
        call=by.drop_in,
    ),
    "TF format over it": Row(
        of.stack(),
        save=by.over("m", by.at("m", tfckpt), by.weights("m")),
        flavours=LEGACY,
    ),
    "a copy over it": Row(
        of.stack(), save=by.over("best", by.at("best", tfckpt), by.copied("best", record=False))
    ),
    "tfckpt over TensorFlow's": Row(
        of.stack(), save=by.over("best", by.at("best", tf), by.at("best", tfckpt))
    ),
}

ROWS: Mapping[str, Row] = {**AGAIN, **LOOPS, **COMPILED, **EDITED, **FILES}
