"""Slots of variables that were given no name, in files of plain TensorFlow: by their position."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import tfckpt


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


@pytest.mark.parametrize("kind", ["sgd", "adam"])
@pytest.mark.parametrize("names", [(), (None, "named")], ids=["none", "one"])
def test_momenta_of_variables_without_names_come_back(kind, names, flavour, tmp_path) -> None:
    saved = Parts(1.0, *names), optimizer(flavour, kind)
    step(*saved), step(*saved)
    path = tfckpt.Checkpoint(module=saved[0], opt=saved[1]).save(str(tmp_path / "ckpt"))
    new = Parts(5.0, *names), optimizer(flavour, kind)
    new[1].build(new[0].order())
    status = tfckpt.Checkpoint(module=new[0], opt=new[1]).restore(path)
    status.assert_consumed()
    for old, now in zip(after(*saved), after(*new), strict=True):
        np.testing.assert_array_equal(old, now)


@pytest.fixture
def of_tensorflow(tmp_path) -> str:
    """Its slots are all called `Adam/m/Variable`; only their numbers tell them apart."""
    tf_keras = pytest.importorskip("tf_keras")
    saved = Parts(1.0), tf_keras.optimizers.Adam(0.1)
    step(*saved)
    return str(tf.train.Checkpoint(module=saved[0], opt=saved[1]).save(str(tmp_path / "ckpt")))


def test_slots_that_a_file_only_numbers_are_refused_with_the_line(of_tensorflow, flavour) -> None:
    new = Parts(5.0), optimizer(flavour, "adam")
    new[1].build(new[0].order())
    with pytest.raises(tfckpt.RefusedError, match=r'"optimizer": "reset"'):
        tfckpt.restore(of_tensorflow, module=new[0], opt=new[1])
    report = tfckpt.restore(of_tensorflow, module=new[0], opt=new[1], policy={"optimizer": "reset"})
    assert report.plan.ok
    assert not any(v.numpy().any() for v in new[1].variables if v.numpy().ndim)
    assert int(new[1].iterations) == 0
    np.testing.assert_allclose(new[0].a, [0.9, 0.9], rtol=1e-5)


def test_a_drop_in_says_that_they_are_left(of_tensorflow, flavour, caplog) -> None:
    new = Parts(5.0), optimizer(flavour, "adam")
    new[1].build(new[0].order())
    tfckpt.Checkpoint(module=new[0], opt=new[1]).restore(of_tensorflow).expect_partial()
    assert "6 slots in the checkpoint, not used" in caplog.text
    assert "`optimizer: reset` begins the optimizer anew: opt/momentum/0" in caplog.text
    caplog.clear()
    tfckpt.Checkpoint(module=Parts(5.0)).restore(of_tensorflow).expect_partial()
    assert "by position" not in caplog.text  # no optimizer was given
