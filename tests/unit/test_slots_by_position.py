"""Slots of variables that were given no name, in files of plain TensorFlow: by their position."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import tfckpt

WRITERS = pytest.mark.parametrize("writer", [tf.train, tfckpt], ids=["tensorflow", "tfckpt"])


class Parts(tf.Module):
    """Variables that are all called `Variable`, or those of a list of names."""

    def __init__(self, value: float, *names: str | None, sizes: tuple[int, ...] = (2, 2, 3)):
        super().__init__()
        made = [tf.Variable(tf.fill((n,), value)) for n in sizes[len(names) :]]
        self.a, self.b, self.c = [
            *(tf.Variable([value, value], name=name) for name in names),
            *made,
        ]

    def order(self) -> list[tf.Variable]:
        return [self.c, self.a, self.b]


def optimizer(flavour: Any, kind: str) -> Any:
    if kind == "sgd":
        return flavour.optimizers.SGD(0.1, momentum=0.9)
    return flavour.optimizers.Adam(0.1)


def step(module: Parts, optimizer: Any) -> None:
    variables = module.order()
    gradients = [tf.ones_like(v) * (n + 1.0) for n, v in enumerate(variables)]
    optimizer.apply_gradients(zip(gradients, variables, strict=True))


def after(module: Parts, optimizer: Any) -> list[np.ndarray]:
    step(module, optimizer)
    return [v.numpy() for v in module.order()]


@WRITERS
@pytest.mark.parametrize("kind", ["sgd", "adam"])
@pytest.mark.parametrize("names", [(), (None, "named")], ids=["none", "one"])
def test_momenta_of_variables_without_names_come_back(
    writer, kind, names, flavour, tmp_path
) -> None:
    saved = Parts(1.0, *names), optimizer(flavour, kind)
    step(*saved), step(*saved)
    path = writer.Checkpoint(module=saved[0], opt=saved[1]).save(str(tmp_path / "ckpt"))
    new = Parts(5.0, *names), optimizer(flavour, kind)
    new[1].build(new[0].order())
    status = tfckpt.Checkpoint(module=new[0], opt=new[1]).restore(path)
    status.assert_consumed()
    for old, now in zip(after(*saved), after(*new), strict=True):
        np.testing.assert_array_equal(old, now)


def test_what_fits_no_position_is_said_and_not_taken(flavour, tmp_path, caplog) -> None:
    tf_keras = pytest.importorskip("tf_keras")
    saved = Parts(1.0), tf_keras.optimizers.Adam(0.1)
    step(*saved)
    path = tf.train.Checkpoint(module=saved[0], opt=saved[1]).save(str(tmp_path / "ckpt"))
    new = Parts(5.0), optimizer(flavour, "adam")
    new[1].build([new[0].a, new[0].b])
    tfckpt.Checkpoint(module=new[0], opt=new[1]).restore(path).expect_partial()
    said = [r.getMessage() for r in caplog.records if r.name == "absl"]
    assert (
        f"{path}: 6 slots in the checkpoint, not used: the file identifies their variables only "
        "by position, and the model's optimizer has other variables, or the same in another order: "
        "opt/momentum/0, opt/momentum/1, opt/momentum/2 and 3 more"
    ) in [text for text in said if levels(caplog, text) >= logging.WARNING]
    momenta = [v.numpy() for v in new[1].variables if v.shape == (2,)]
    assert not any(value.any() for value in momenta)
    caplog.clear()
    tfckpt.Checkpoint(module=Parts(5.0)).restore(path).expect_partial()
    assert "by position" not in caplog.text  # no optimizer was given


def levels(caplog: Any, text: str) -> int:
    return max(r.levelno for r in caplog.records if r.getMessage() == text)
