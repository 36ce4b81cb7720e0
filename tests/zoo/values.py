"""Values of models, optimizers and variables: given, read, written to Keras's files, compared."""

from __future__ import annotations

import contextlib

import keras
import numpy as np
import tensorflow as tf

FORMATS = (".weights.h5", ".h5", ".keras")


def variables(thing):
    if isinstance(thing, tf.Variable):
        return [thing]
    found = thing.variables
    found = found() if callable(found) else found
    return [each for each in found if hasattr(each, "numpy")]  # tf_keras counts tables, too


def read(*things):
    return [np.asarray(variable.numpy()) for thing in things for variable in variables(thing)]


def fill(seed, *things):
    """Gives each variable a value of its own, but states of random numbers; the first thing."""
    draw = np.random.default_rng(seed)
    for variable in (each for thing in things for each in variables(thing)):
        old = np.asarray(variable.numpy())
        if old.dtype.kind == "i":
            variable.assign(draw.integers(1, 1000, old.shape).astype(old.dtype))
        elif old.dtype.kind not in "uSO":
            variable.assign(draw.uniform(0.1, 1.0, old.shape).astype(old.dtype))
    return things[0]


def equal(one, other):
    """Whether two models have the same weights to the last bit, in Keras's own order."""
    both = zip(one.get_weights(), other.get_weights(), strict=True)
    return all(a.dtype == b.dtype and a.tobytes() == b.tobytes() for a, b in both)


@contextlib.contextmanager
def untouched(*things):
    """Fails unless every variable stays bit-identical."""
    before = [(value.dtype, value.shape, value.tobytes()) for value in read(*things)]
    yield
    assert [(value.dtype, value.shape, value.tobytes()) for value in read(*things)] == before


def save(model, directory, suffix):
    """The path of a file of the model; Keras 3 writes an ``.h5`` of the whole model alone."""
    path = str(directory / f"model{suffix}")
    whole = suffix == ".keras" or (suffix == ".h5" and isinstance(model, keras.Model))
    (model.save if whole else model.save_weights)(path)
    return path
