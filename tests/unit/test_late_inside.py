"""Plain trackables inside of what also holds Keras objects: what they make later is named."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import tfckpt

WRITERS = pytest.mark.parametrize("writer", [tf.train, tfckpt], ids=["tensorflow", "tfckpt"])


class Lazy(tf.Module):
    """Makes its variables when it is called."""

    def __init__(self, value: float) -> None:
        super().__init__()
        self.value = value
        self.parts: list[tf.Variable] = []

    def __call__(self, data: Any) -> Any:
        if not self.parts:
            self.parts.append(tf.Variable(self.value))
            self.parts.append(tf.Variable(self.value + 1))
            self._scale = tf.Variable(self.value + 2)
        return data * self.parts[0] + self.parts[1] * self._scale

    @property
    def numbers(self) -> list[float]:
        return [float(v) for v in (*self.parts, self._scale)]


class Holder(tf.Module):
    def __init__(self, layer: Any, value: float) -> None:
        super().__init__()
        self.layer, self.lazy = layer, Lazy(value)


def stack(flavour: Any, *names: str) -> Any:
    layers = [flavour.layers.Dense(3, name=name) for name in names]
    return flavour.Sequential([flavour.Input((3,)), *layers])


def holder(flavour: Any, value: float, *names: str) -> Any:
    return Holder(stack(flavour, *(names or "a")), value)


def model(flavour: Any, value: float) -> Any:
    class Scaled(flavour.Model):
        def __init__(self) -> None:
            super().__init__()
            self.dense = flavour.layers.Dense(3, name="dense")
            self.lazy = Lazy(value)
            self.dense.build((None, 3))
            self.built = True

        def call(self, data: Any) -> Any:
            return self.lazy(self.dense(data))

    return Scaled()


@WRITERS
@pytest.mark.parametrize("build", [holder, model])
@pytest.mark.parametrize("given", ["keyword", "root"])
def test_what_a_module_makes_on_its_first_call_is_named(
    build, given, writer, flavour, tmp_path, caplog
) -> None:
    def checkpoint(kind: Any, obj: Any) -> Any:
        return kind(obj) if given == "root" else kind(thing=obj)

    saved = build(flavour, 7.0)
    saved.lazy(1.0)
    path = checkpoint(writer.Checkpoint, saved).save(str(tmp_path / "ckpt"))
    later = build(flavour, 0.0)
    status = checkpoint(tfckpt.Checkpoint, later).restore(path)
    status.assert_existing_objects_matched()
    (text,) = (r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING)
    assert text.startswith(f"{path}: 3 values stay in the checkpoint, since no object has these ")
    assert "lazy/parts/0" in text
    assert text.endswith("create them first, then restore")
    later.lazy(1.0)
    assert later.lazy.numbers == [0.0, 1.0, 2.0]
    checkpoint(tfckpt.Checkpoint, later).restore(path).assert_consumed()
    assert later.lazy.numbers == [7.0, 8.0, 9.0]


@WRITERS
@pytest.mark.parametrize("kind", ["AdamOptimizer", "MomentumOptimizer"])
def test_an_optimizer_of_tensorflow_1_takes_a_step_first(
    writer, kind, flavour, tmp_path, caplog
) -> None:
    def objects(value: float) -> dict[str, Any]:
        more = {"momentum": 0.9} if kind == "MomentumOptimizer" else {}
        optimizer = getattr(tf.compat.v1.train, kind)(0.1, **more)
        plain = tf.Variable([value, value], name="plain")
        return {"model": stack(flavour, "a"), "plain": plain, "solver": optimizer}

    def step(given: dict[str, Any]) -> None:
        plain = given["plain"]
        given["solver"].apply_gradients([(2 * plain, plain)])

    saved = objects(1.0)
    step(saved), step(saved)
    path = writer.Checkpoint(**saved).save(str(tmp_path / "ckpt"))
    later = objects(5.0)
    tfckpt.Checkpoint(**later).restore(path)
    assert "to restore it, compile the model first, then restore" in caplog.text
    step(later)
    tfckpt.Checkpoint(**later).restore(path).assert_consumed()
    step(saved), step(later)
    np.testing.assert_array_equal(saved["plain"], later["plain"])


def test_what_tensorflow_fails_to_restore_is_no_missing_checkpoint(
    flavour, tmp_path, monkeypatch
) -> None:
    def objects(value: float) -> dict[str, Any]:
        return {"layer": stack(flavour, "a"), "lazy": Lazy(value)}

    old, new = objects(1.0), objects(5.0)
    old["lazy"](np.ones(3))
    path = tfckpt.Checkpoint(**old).write(str(tmp_path / "ckpt"))
    before = new["layer"].get_weights()

    def fail(*_: Any, **__: Any) -> None:
        raise tf.errors.NotFoundError(None, None, "a key is not in it")

    monkeypatch.setattr(tf.train.Checkpoint, "read", fail)
    with pytest.raises(tfckpt.RestoreError, match="a key is not in it") as refused:
        tfckpt.Checkpoint(**new).read(path)
    assert not isinstance(refused.value, (tf.errors.NotFoundError, FileNotFoundError))
    for one, other in zip(before, new["layer"].get_weights(), strict=True):
        np.testing.assert_array_equal(one, other)
