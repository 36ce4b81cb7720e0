"""What was saved under a keyword is restored into what is given under it, and into nothing else.

The values tell who got whose, and plain TensorFlow who should have.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import tensorflow as tf

import tfckpt

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


def net(k: Any, fill: float, compiled: bool = False) -> Any:
    model = k.Sequential([k.Input((4,)), k.layers.Dense(4, name="a"), k.layers.Dropout(0.5)])
    if compiled:
        model.compile(k.optimizers.SGD(0.1, momentum=0.9), "mse")
        model.optimizer.build(model.trainable_variables)
        model.optimizer.iterations.assign(int(fill))
        for slot in slots(model.optimizer):
            slot.assign(np.full(slot.shape, fill))
    model.set_weights([np.full_like(weight, fill) for weight in model.get_weights()])
    return model


def slots(optimizer: Any) -> list[Any]:
    return [v for v in optimizer.variables if len(v.shape) and v.dtype != "int64"]


def weight(model: Any) -> float:
    return float(model.layers[0].get_weights()[0][0, 0])


def restored(saver: Any, tmp_path: Path, saved: Mapping[str, Any], live: Mapping[str, Any]) -> Any:
    path = saver.Checkpoint(**saved).write(str(tmp_path / f"{saver.__name__}-ckpt"))
    saver.Checkpoint(**live).read(path).expect_partial()
    return {name: weight(model) for name, model in live.items()}


@pytest.mark.parametrize(
    ("stored", "live"),
    [
        (["teacher"], ["student", "teacher"]),
        (["teacher"], ["teacher", "model"]),
        (["encoder", "decoder"], ["decoder"]),
        (["model", "ema"], ["ema"]),
        (["model", "ema"], ["model"]),
        (["model", "ema"], ["ema", "other"]),
    ],
    ids=str,
)
def test_a_keyword_is_restored_into_itself_as_plain_tensorflow_does(
    flavour, stored, live, tmp_path
) -> None:
    saved = {name: net(flavour, 7 + i) for i, name in enumerate(stored)}
    expected = restored(
        tf.train, tmp_path, saved, {name: net(flavour, i) for i, name in enumerate(live)}
    )
    got = restored(tfckpt, tmp_path, saved, {name: net(flavour, i) for i, name in enumerate(live)})
    assert got == expected


@pytest.mark.parametrize("live", [["model", "ema"], ["student", "other"]], ids=str)
def test_a_lone_model_lands_on_none_of_several_of_other_keywords(flavour, live, tmp_path) -> None:
    path = tfckpt.Checkpoint(teacher=net(flavour, 7)).write(str(tmp_path / "ckpt"))
    models = {name: net(flavour, i) for i, name in enumerate(live)}
    with pytest.raises(tfckpt.TfckptError):
        tfckpt.Checkpoint(**models).read(path).assert_nontrivial_match()
    assert [weight(model) for model in models.values()] == [0, 1]


def whole(k: Any, fill: float, subclassed: bool) -> Any:
    """A model around another one, which has layers of the same names and shapes."""
    backbone = k.Sequential([k.Input((4,)), k.layers.Dense(4), k.layers.Dense(4)])
    if subclassed:

        class Net(k.Model):
            def __init__(self) -> None:
                super().__init__()
                self.dense, self.dense_1 = k.layers.Dense(4), k.layers.Dense(4)
                self.backbone = backbone

            def call(self, x: Any) -> Any:
                return self.dense_1(self.backbone(self.dense(x)))

        model = Net()
        model(tf.ones((1, 4)))
    else:
        layers = [k.layers.Dense(4), backbone, k.layers.Dense(4)]
        model = k.Sequential([k.Input((4,)), *layers])
        model.backbone = backbone
    random = np.random.default_rng(int(fill))
    model.set_weights([random.normal(size=each.shape) for each in model.get_weights()])
    return model


@pytest.mark.parametrize("saver", [tf.train, tfckpt], ids=["tensorflow", "tfckpt"])
@pytest.mark.parametrize("subclassed", [False, True])
@pytest.mark.parametrize("given", ["beside model", "beside net", "of the root", "alone"])
def test_a_part_that_was_saved_beside_its_whole_is_found_by_its_keyword(
    flavour, given, subclassed, saver, tmp_path
) -> None:
    """TensorFlow follows the keyword, although the whole is called as a lone model is."""
    old = whole(flavour, 1, subclassed)
    part = {"backbone": old.backbone}
    saved = {
        "beside model": {"model": old, **part},
        "beside net": {"net": old, **part},
        "of the root": {"root": old},
        "alone": part,
    }[given]
    path = saver.Checkpoint(**saved).write(str(tmp_path / "ckpt"))
    theirs, dropped, declared = (whole(flavour, fill, subclassed) for fill in (2, 2, 2))
    tf.train.Checkpoint(backbone=theirs.backbone).read(path).expect_partial()
    tfckpt.Checkpoint(backbone=dropped.backbone).read(path).assert_existing_objects_matched()
    policy = {"api": "read", "on_unexpected": "ignore"}
    tfckpt.restore(path, policy=policy, backbone=declared.backbone)
    for new in (dropped, declared):
        for one, other in zip(theirs.get_weights(), new.get_weights(), strict=True):
            np.testing.assert_array_equal(one, other)
