"""What `tfckpt inspect` prints can be pasted into a policy, whatever the model is passed as."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from zoo import command_line
from zoo.variables import inner

import tfckpt


@pytest.fixture
def written(flavour: Any, tmp_path: Any) -> tuple[Any, str, str]:
    """A subclassed model by TensorFlow, as `save_weights` of Keras 2 wrote it: without a root."""

    class Net(flavour.Model):
        def __init__(self) -> None:
            super().__init__()
            self.enc = flavour.layers.Dense(3)
            self.dec = flavour.layers.Dense(4)

        def call(self, x: Any) -> Any:
            return self.dec(self.enc(x))

    first, second = Net(), Net()
    for model in (first, second):
        model(np.ones((1, 4), "float32"))
    path = str(tf.train.Checkpoint(first).write(str(tmp_path / "weights")))
    printed = command_line.run("inspect", path).out
    (name,) = (w for w in printed.split() if w.endswith("enc/kernel"))
    return (first, second), path, name


def test_a_name_as_printed_is_taken_in_every_key(written: Any) -> None:
    (first, second), path, name = written
    own = inner(second.enc.kernel).numpy()
    scope = name.removesuffix("kernel") + "**"
    report = tfckpt.restore(path, second, exclude=[scope], exclude_checkpoint=[name])
    np.testing.assert_array_equal(inner(second.enc.kernel).numpy(), own)
    np.testing.assert_array_equal(inner(second.dec.kernel).numpy(), inner(first.dec.kernel).numpy())
    assert len(report.plan.assignments) == 2
    tfckpt.restore(path, second, include=[name], on_unexpected="ignore")
    np.testing.assert_array_equal(inner(second.enc.kernel).numpy(), inner(first.enc.kernel).numpy())


def test_a_rule_may_say_where_a_printed_name_goes(written: Any, flavour: Any) -> None:
    (first, _), path, name = written
    layers = [flavour.layers.Dense(3, name="a"), flavour.layers.Dense(4, name="b")]
    model = flavour.Sequential([flavour.Input((4,)), *layers])
    rename = [
        {"checkpoint": name.replace("enc/kernel", f"{old}/**"), "model": f"model/{new}/**"}
        for old, new in (("enc", "a"), ("dec", "b"))
    ]
    tfckpt.restore(path, model, rename=rename)
    np.testing.assert_array_equal(inner(layers[0].kernel).numpy(), inner(first.enc.kernel).numpy())


def test_a_name_that_nothing_has_is_refused_as_ever(written: Any) -> None:
    (_, second), path, _ = written
    with pytest.raises(tfckpt.RefusedError, match="'nothing/kernel' matches nothing"):
        tfckpt.restore(path, second, exclude=["nothing/kernel"])
