"""Everything that writes a checkpoint of live objects."""

from __future__ import annotations

import contextlib
import io
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf
from absl import logging

import tfckpt
from golden.subjects import Subject


def written(
    subject: Subject, objects: dict[str, Any], to: Path
) -> Iterator[tuple[str, str | Exception]]:
    """Each writer, and the path of what it wrote, or why it cannot write these objects."""
    ours = tfckpt.Checkpoint(**objects).save(f"{to}/ours/ckpt")
    yield "tfckpt.Checkpoint", ours
    yield "tf.train.Checkpoint", tf.train.Checkpoint(**objects).save(f"{to}/theirs/ckpt")
    yield "tfckpt.export .safetensors", _tried(_written(ours), f"{to}/ours.safetensors")
    if not subject.files:
        return
    model = objects["model"]
    if subject.more:
        yield "tf.train.Checkpoint, at the root", tf.train.Checkpoint(model).write(f"{to}/root")
        yield "SavedModel", _tried(_export(model), f"{to}/exported")
    for file in subject.files:
        path = f"{to}/whole{file}" if file.startswith(".") else f"{to}/{file}"
        if file == "exported.weights.h5":
            yield "tfckpt.export .weights.h5", _tried(_written(ours, objects), path)
        elif file in (".keras", ".h5"):
            yield f"save {file}", _tried(model.save, path)
        elif file == ".weights.h5" or not isinstance(model, keras.Model):  # Keras 3 has that alone
            yield f"save_weights {file}", _tried(model.save_weights, path)


def _written(source: str, *objects: dict[str, Any]) -> Callable[[str], Any]:
    return lambda path: tfckpt.export(source, path, *objects)


def _export(model: Any) -> Callable[[str], Any]:
    if isinstance(model, keras.Model):
        return lambda path: model.export(path, verbose=False)
    return lambda path: model.save(path, save_format="tf")


def _tried(write: Callable[[str], Any], path: str) -> str | Exception:
    level = logging.get_verbosity()
    logging.set_verbosity(logging.ERROR)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            write(path)
    except (ValueError, NotImplementedError, TypeError, tfckpt.TfckptError) as error:
        return error
    finally:
        logging.set_verbosity(level)
    return path
