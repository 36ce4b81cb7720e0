"""The restores of the table, and what should come of each."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import tensorflow as tf

import tfckpt
from zoo.everyday import programs as of
from zoo.everyday import writers as by
from zoo.everyday.judge import PASTED, REFUSED, Row

KERAS3, LEGACY = ("keras",), ("tf_keras",)
ASKED = {"should": PASTED}
OPTIMIZER = "optimizer"  # what must be said of one that only one side has
TENSORFLOW, H5 = by.TENSORFLOW, by.weights("m.weights.h5")
LOOP, COUNTED = of.loop("step"), of.loop("step", "epoch")


def plain(*layers: str, **more: object) -> of.Make:
    """A stack without an optimizer."""
    return of.stack(*layers, optimizer=None, **more)


def by_optimizer(name: str, **more: object) -> of.Make:
    return of.stack(optimizer=name, **more)


def images(optimizer: str | None = "sgd") -> of.Make:
    layers = ("conv1", "norm1", "conv2", "norm2", "pool", "head")
    return of.stack(*layers, inputs=(4, 4, 1), optimizer=optimizer, activation=None)


STACK, UNBUILT, PLAIN = of.stack(), of.stack(built=False), plain()
DROPPING = ("dense1", "drop1", "dense2", "head")
ONE_HEAD, WIDER = plain(head="head"), plain(head="head", classes=5)
TWO = plain("dense1", "dense2")
FROZEN = of.stack(frozen=("dense1", "dense2"))

OVER = by.over("best", by.at("best", tfckpt), by.at("best", tf))

# The same program again.
AGAIN: Mapping[str, Row] = {
    "sequential": Row(STACK, UNBUILT),
    "functional": Row(of.stack(shape="functional")),
    "subclassed": Row(of.stack(shape="subclassed")),
    "list of layers": Row(of.stack(shape="listed")),
    "nested": Row(of.stack(shape="nested")),
    "dropout": Row(of.stack("dense1", "drop1", "dense2", "drop2", "head")),
    "images": Row(images()),
    "SGD": Row(by_optimizer("sgd"), by_optimizer("sgd", built=False)),
    "amsgrad": Row(by_optimizer("amsgrad")),
    "use_ema": Row(by_optimizer("averaged")),
    "accumulation": Row(by_optimizer("accumulating"), flavours=KERAS3),
    "loss scale": Row(by_optimizer("scaled")),
    "frozen": Row(FROZEN),
    "module": Row(of.module(), flavours=KERAS3),
    "two optimizers": Row(of.gan(), call=by.everything),
    "TensorFlow, Sequential": Row(STACK, UNBUILT, TENSORFLOW),
    "TensorFlow, subclassed": Row(of.stack(shape="subclassed"), save=TENSORFLOW),
    "TensorFlow, list": Row(of.stack(shape="listed"), save=TENSORFLOW, flavours=LEGACY),
    "TensorFlow, images": Row(images(), save=TENSORFLOW),
    "TensorFlow, module": Row(of.module(), save=TENSORFLOW, flavours=KERAS3),
    "assert_consumed": Row(STACK, save=TENSORFLOW, call=by.consumed),
    "manager": Row(STACK, save=by.by_manager(tfckpt), call=by.of_manager),
    "TensorFlow's manager": Row(STACK, save=by.by_manager(tf), call=by.of_manager),
}

# What is no program of Keras's `fit` alone.
LOOPS: Mapping[str, Row] = {
    "loop": Row(LOOP, call=by.everything),
    "loop, drop-in": Row(COUNTED, call=by.drop_in),
    "loop by TensorFlow": Row(LOOP, save=TENSORFLOW, call=by.everything),
    "loop, iterator": Row(of.loop("step", "data"), call=by.everything),
    "epoch added": Row(LOOP, COUNTED, call=by.everything, left="epoch"),
    "step not asked for": Row(LOOP, of.loop(), call=by.everything, left="step"),
    "model alone of a loop": Row(LOOP, of.loop(optimizer=False), left=OPTIMIZER),
    "the same, by TensorFlow": Row(LOOP, of.loop(optimizer=False), TENSORFLOW, left=OPTIMIZER),
    "iterator not asked for": Row(of.loop("step", "data"), LOOP, call=by.everything, left="data"),
    "iterator added": Row(LOOP, of.loop("step", "data"), call=by.everything, left="data"),
    "optimizer added": Row(
        of.loop("step", optimizer=False), LOOP, call=by.everything, left=OPTIMIZER
    ),
    "another keyword": Row(of.loop("step", keyword="net"), LOOP, TENSORFLOW, by.everything),
    "saved as the root": Row(PLAIN, save=by.as_root),
    "written without a number": Row(PLAIN, save=by.at("weights", tf)),
    "from a directory": Row(LOOP, save=by.by_manager(tf), call=by.everything),
    "module and step": Row(of.module(step=True), of.module(), left="step", flavours=KERAS3),
    "module grown": Row(of.module(), of.module(more=True), left="bonus", flavours=KERAS3, **ASKED),
    "module, another head": Row(
        of.module(), of.module(out=4), stays=("main",), flavours=KERAS3, **ASKED
    ),
    "GAN, not compiled": Row(of.gan(), of.gan(optimizers=False), call=by.everything, left="optim"),
    "optimizers of another keyword": Row(of.gan(), of.gan(called="solver"), call=by.everything),
    "generator alone": Row(
        of.gan(),
        of.gan("generator", optimizers=False),
        TENSORFLOW,
        by.everything,
        "discriminator",
        **ASKED,
    ),
    "a run, elsewhere": Row(STACK, save=by.by_run, call=by.by_config),
    "a run, without optimizer": Row(STACK, PLAIN, by.by_run, by.by_config, OPTIMIZER),
    "weights into a run": Row(PLAIN, STACK, by.at("weights", tf), by.by_config, OPTIMIZER),
    "a fit, now a loop": Row(STACK, of.loop("step"), H5, by.everything, "step"),
    "generator, expect_partial": Row(
        of.gan(), of.gan("generator", optimizers=False), TENSORFLOW, by.partially
    ),
}

# Compiled in another way than when it was saved.
COMPILED: Mapping[str, Row] = {
    "weights into compiled": Row(PLAIN, UNBUILT, left=OPTIMIZER),
    "compiled into weights": Row(STACK, PLAIN, left=OPTIMIZER),
    "TF weights, compiled": Row(PLAIN, UNBUILT, TENSORFLOW, left=OPTIMIZER),
    "TF compiled, weights": Row(STACK, PLAIN, TENSORFLOW, left=OPTIMIZER),
    "drop-in, compiled": Row(PLAIN, STACK, call=by.drop_in),
    "images, not compiled": Row(images(), images(None), left=OPTIMIZER),
    "subclassed, compiled": Row(
        plain(shape="subclassed"), of.stack(shape="subclassed"), left=OPTIMIZER
    ),
    "metrics added": Row(STACK, of.stack(metrics=["mae", "mse"])),
    "metrics gone": Row(of.stack(metrics=["mae"]), STACK),
    "another rate": Row(STACK, by_optimizer("faster"), left="learning_rate"),
    "Adam, now SGD": Row(STACK, by_optimizer("sgd"), **ASKED),
    "SGD, now Adam": Row(by_optimizer("sgd"), STACK, **ASKED),
    "Adam, now AdamW": Row(STACK, by_optimizer("adamw")),
    "momentum gone": Row(by_optimizer("sgd"), by_optimizer("plain_sgd")),
    "use_ema added": Row(STACK, by_optimizer("averaged"), left="restored weights"),
    "use_ema gone": Row(by_optimizer("averaged"), STACK, left=OPTIMIZER),
    "amsgrad added": Row(STACK, by_optimizer("amsgrad"), left="no such slot"),
    "accumulation added": Row(STACK, by_optimizer("accumulating"), flavours=KERAS3, **ASKED),
    "accumulation gone": Row(by_optimizer("accumulating"), STACK, flavours=KERAS3, **ASKED),
    "amsgrad gone": Row(by_optimizer("amsgrad"), STACK, left="no such slot"),
    "use_ema, weights alone": Row(PLAIN, by_optimizer("averaged"), left="restored weights"),
    "TF, use_ema added": Row(STACK, by_optimizer("averaged"), TENSORFLOW, left="restored weights"),
    "loss scale added": Row(STACK, by_optimizer("scaled")),
    "loss scale gone": Row(by_optimizer("scaled"), STACK, left="scale"),
    "unfrozen": Row(FROZEN, STACK, left="was not trained"),
    "frozen since": Row(STACK, FROZEN, left="not trained"),
}

# The layers were edited.
EDITED: Mapping[str, Row] = {
    "Dropout added": Row(STACK, of.stack(*DROPPING)),
    "Dropout gone": Row(of.stack(*DROPPING), STACK),
    "second Dropout": Row(
        of.stack(*DROPPING, named=True),
        of.stack("dense1", "drop1", "dense2", "drop2", "head", named=True),
        left="drop2",
        flavours=KERAS3,
    ),
    "another activation": Row(STACK, of.stack(activation="tanh")),
    "TF, Dropout added": Row(STACK, of.stack(*DROPPING), TENSORFLOW),
    "more classes": Row(ONE_HEAD, WIDER, stays=("head",), **ASKED),
    "more classes, compiled": Row(
        of.stack(head="head"),
        of.stack(head="head", classes=5),
        stays=("head",),
        **ASKED,
    ),
    "another head": Row(
        ONE_HEAD, of.meaning(plain(head="flowers", classes=5), head="flowers"), **ASKED
    ),
    "a named layer inserted": Row(
        plain("dense1", "head", head="head"),
        plain("dense1", "scale1", "head", named=("scale1",), head="head"),
        **ASKED,
    ),
    "BatchNormalization added": Row(PLAIN, plain("dense1", "norm1", "dense2", "head"), **ASKED),
    "a layer renamed": Row(plain(hidden=4, head="old"), plain(hidden=4, head="new"), **ASKED),
    "two renamed": Row(
        of.heads("digits", "boxes"),
        of.meaning(of.heads("numbers", "places"), numbers="digits", places="boxes"),
        **ASKED,
    ),
    "a head more": Row(of.heads("digits"), of.heads("digits", "boxes"), **ASKED),
    "a head less": Row(of.heads("digits", "boxes"), of.heads("digits"), **ASKED),
    "a named layer appended": Row(TWO, plain("dense1", "dense2", "head", head="head"), **ASKED),
    "a layer appended": Row(
        TWO,
        plain("dense1", "dense2", "dense3"),
        today=(REFUSED, "one inserted before the others looks the same: it is asked"),
        **ASKED,
    ),
    "encoder alone": Row(partial(of.encoder, decoder=True), of.encoder, **ASKED),
    "Sequential, now functional": Row(STACK, of.stack(shape="functional")),
    "functional, now subclassed": Row(
        plain(shape="functional"), plain(shape="subclassed"), **ASKED
    ),
    "named since": Row(PLAIN, plain(named=True), **ASKED),
    "named, .keras, now functional": Row(
        of.stack(named=True), of.stack(named=True, shape="functional"), by.whole("m.keras")
    ),
}

# Files of Keras and of TensorFlow.
FILES: Mapping[str, Row] = {
    ".weights.h5": Row(PLAIN, save=H5),
    ".weights.h5, compiled": Row(STACK, save=H5),
    ".weights.h5, not compiled": Row(STACK, PLAIN, H5, left=OPTIMIZER),
    ".weights.h5 into compiled": Row(PLAIN, STACK, H5, left=OPTIMIZER),
    ".weights.h5, subclassed": Row(plain(shape="subclassed"), save=H5),
    ".weights.h5, nested": Row(plain(shape="nested"), save=H5),
    ".weights.h5, images": Row(images(None), save=H5),
    ".weights.h5, more classes": Row(ONE_HEAD, WIDER, H5, stays=("head",), **ASKED),
    ".weights.h5, Dropout added": Row(PLAIN, plain(*DROPPING), H5),
    ".keras": Row(STACK, save=by.whole("m.keras")),
    ".keras, functional": Row(of.stack(shape="functional"), save=by.whole("m.keras")),
    ".keras, not compiled": Row(STACK, PLAIN, by.whole("m.keras"), left=OPTIMIZER),
    ".keras into compiled": Row(PLAIN, STACK, by.whole("m.keras"), left=OPTIMIZER),
    ".keras, more classes": Row(ONE_HEAD, WIDER, by.whole("m.keras"), stays=("head",), **ASKED),
    ".h5": Row(STACK, save=by.whole("m.h5")),
    ".h5, not compiled": Row(STACK, PLAIN, by.whole("m.h5"), left=OPTIMIZER),
    ".h5 into compiled": Row(PLAIN, STACK, by.whole("m.h5"), left=OPTIMIZER),
    "weights as .h5": Row(PLAIN, save=by.weights("m.h5"), flavours=LEGACY),
    "TF format": Row(STACK, save=by.weights("m"), flavours=LEGACY),
    "TF format, not compiled": Row(STACK, PLAIN, by.weights("m"), left=OPTIMIZER, flavours=LEGACY),
    "SavedModel": Row(plain(shape="functional"), save=by.exported),
    "SavedModel of a module": Row(of.module(), save=by.exported, flavours=KERAS3),
    "copied": Row(STACK, save=by.copied("best")),
    "copied, drop-in": Row(STACK, save=by.copied("best"), call=by.drop_in),
    "renamed": Row(STACK, save=by.copied("final-3", move=True)),
    "moved": Row(STACK, save=by.copied("kept/ckpt-1", move=True)),
    "copied without its record": Row(STACK, save=by.copied("best", record=False)),
    "TensorFlow wrote over it": Row(STACK, save=OVER),
    "over it, drop-in": Row(LOOP, save=OVER, call=by.drop_in),
    "TF format over it": Row(
        STACK, save=by.over("m", by.at("m", tfckpt), by.weights("m")), flavours=LEGACY
    ),
    "a copy over it": Row(
        STACK,
        save=by.over("best", by.at("best", tfckpt), by.copied("best", record=False)),
    ),
    "tfckpt over TensorFlow's": Row(
        STACK, save=by.over("best", by.at("best", tf), by.at("best", tfckpt))
    ),
}

ROWS: Mapping[str, Row] = {**AGAIN, **LOOPS, **COMPILED, **EDITED, **FILES}
