"""A plan and a restore that is refused leave optimizers unbuilt, and as good as new."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import tfckpt
from tfckpt.live.objects.collect import collect

BATCH = np.linspace(-1, 1, 32, dtype=np.float32).reshape(8, 4), np.ones((8, 3), np.float32)


def adam(k: Any) -> Any:
    return k.optimizers.Adam(0.01, use_ema=True)


def named(_: Any) -> str:
    """Keras 3 makes one whose dicts TensorFlow tracks, and not Keras."""
    return "adam"


def accumulating(k: Any) -> Any:
    """In Keras 3 alone."""
    three = "tf_keras" not in k.__name__
    return k.optimizers.SGD(0.1, 0.9, **({"gradient_accumulation_steps": 2} if three else {}))


def adafactor(k: Any) -> Any:
    return k.optimizers.Adafactor(0.01)


def scaled(k: Any) -> Any:
    where = k.mixed_precision if "tf_keras" in k.__name__ else k.optimizers
    return where.LossScaleOptimizer(k.optimizers.Adam(0.01))


def legacy(k: Any) -> Any:
    return k.optimizers.legacy.Adam(0.01) if "tf_keras" in k.__name__ else k.optimizers.Lion(0.01)


optimizers = pytest.mark.parametrize("make", [adam, named, accumulating, adafactor, scaled, legacy])


def net(k: Any, make: Any, classes: int = 3) -> Any:
    """Always the same weights."""
    model = k.Sequential(
        [k.Input((4,)), k.layers.Dense(5, name="body"), k.layers.Dense(classes, name="classes")]
    )
    random = np.random.default_rng(5)
    model.set_weights([random.uniform(-1, 1, w.shape) for w in model.get_weights()])
    model.compile(make(k), "mse")
    return model


def step(model: Any, optimizer: Any, variables: list[Any]) -> None:
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((model(BATCH[0]) - BATCH[1]) ** 2)
    optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))


def values(model: Any) -> dict[str, np.ndarray]:
    live = collect({"model": model})
    return {name: np.array(value) for name, value in live.variables.items()}


def looks(optimizer: Any) -> list[Any]:
    """What a person can see of whether it is built."""
    inner = getattr(optimizer, "inner_optimizer", None)
    seen = [getattr(optimizer, "built", None), getattr(optimizer, "_built", None)]
    variables = optimizer.variables() if callable(optimizer.variables) else optimizer.variables
    seen += [[variable.name for variable in variables]]
    return seen + (looks(inner) if inner is not None else [])


@pytest.fixture
def trained(flavour: Any, tmp_path: Path) -> Any:
    def train(make: Any) -> str:
        model = net(flavour, make)
        model.fit(*BATCH, batch_size=4, epochs=1, verbose=0)
        return tfckpt.Checkpoint(model=model).save(tmp_path / "ckpt")

    return train


def plan(path: str, objects: dict[str, Any]) -> None:
    assert tfckpt.plan(path, **objects).ok


def plan_of_a_run(path: str, objects: dict[str, Any]) -> None:
    source = {"version": 1, "restore": {"path": path}}
    assert tfckpt.from_config(source, **objects).plan().ok


def refused(path: str, objects: dict[str, Any]) -> None:
    with pytest.raises(tfckpt.RefusedError):
        tfckpt.restore(path, expect_missing=["model/body/kernel"], **objects)


def damaged(path: str, objects: dict[str, Any]) -> None:
    data = Path(f"{path}.data-00000-of-00001")
    content = data.read_bytes()
    data.write_bytes(bytes(byte ^ 255 for byte in content))
    with pytest.raises(tfckpt.DamagedCheckpointError):
        tfckpt.Checkpoint(**objects).restore(path)
    data.write_bytes(content)


ways = pytest.mark.parametrize("way", [plan, plan_of_a_run, refused, damaged])


@ways
@optimizers
def test_the_optimizer_is_as_new(flavour: Any, make: Any, way: Any, trained: Any) -> None:
    path = trained(make)
    model, fresh = net(flavour, make), net(flavour, make)
    before, names = looks(model.optimizer), list(tfckpt.inventory(model).entries)
    way(path, {"model": model})
    assert looks(model.optimizer) == before
    assert list(tfckpt.inventory(model).entries) == names

    # It trains as one that nobody has touched.
    for each in (model, fresh):
        head = each.layers[-1].trainable_variables
        for _ in range(4):
            step(each, each.optimizer, head)
    found, expected = values(model), values(fresh)
    assert found.keys() == expected.keys()
    assert all(map(np.array_equal, found.values(), expected.values()))


@ways
def test_it_can_be_saved_once_it_is_built(
    flavour: Any, way: Any, trained: Any, tmp_path: Path
) -> None:
    """TensorFlow refuses a dict of which it thinks that it was changed behind its back."""
    path = trained(named)
    model = net(flavour, named)
    way(path, {"model": model})
    model.fit(*BATCH, batch_size=4, verbose=0)
    saved = tf.train.Checkpoint(model=model).save(tmp_path / "by_tensorflow")
    tfckpt.Checkpoint(model=net(flavour, named)).restore(saved).assert_existing_objects_matched()


@optimizers
def test_it_is_restored_after_a_plan_and_a_refusal(flavour: Any, make: Any, trained: Any) -> None:
    path = trained(make)
    model, other = net(flavour, make), net(flavour, make)
    checkpoint = tfckpt.Checkpoint(model=model)
    plan(path, {"model": model})
    refused(path, {"model": model})
    checkpoint.restore(path).assert_existing_objects_matched()
    tfckpt.restore(path, other)
    for each in (model, other):
        each.fit(*BATCH, batch_size=4, epochs=2, verbose=0, shuffle=False)
    found, expected = values(model), values(other)
    assert found.keys() == expected.keys()
    assert all(map(np.array_equal, found.values(), expected.values()))


def test_a_checkpoint_that_was_refused_saves_what_there_is(
    flavour: Any, trained: Any, tmp_path: Path
) -> None:
    """What it knows of its objects from the refusal is not what they are."""
    path = trained(adam)
    model = net(flavour, adam, classes=7)
    checkpoint = tfckpt.Checkpoint(model=model)
    with pytest.raises(tfckpt.RefusedError):
        checkpoint.restore(path)
    again = tfckpt.Checkpoint(model=net(flavour, adam, classes=7))
    again.restore(checkpoint.save(tmp_path / "again")).assert_consumed()


def test_the_slots_of_a_plan_are_let_go(flavour: Any, trained: Any) -> None:
    path = trained(adam)
    model = net(flavour, adam)
    made: list[Any] = []
    genuine = type(model.optimizer).build

    def build(self: Any, variables: Any) -> None:
        genuine(self, variables)
        made.extend(weakref.ref(each) for each in self._momentums)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(model.optimizer), "build", build)
        plan(path, {"model": model})
    gc.collect()
    assert len(made) == 4
    assert not any(each() is not None for each in made)


def test_a_build_that_fails_leaves_nothing_half_built(flavour: Any, trained: Any) -> None:
    path = trained(adam)
    model = net(flavour, adam)
    before = looks(model.optimizer)
    genuine = type(model.optimizer).build

    def build(self: Any, variables: Any) -> None:
        genuine(self, variables)
        raise MemoryError

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(model.optimizer), "build", build)
        with pytest.raises(MemoryError):
            tfckpt.restore(path, model)
    assert looks(model.optimizer) == before
    plan(path, {"model": model})


def test_an_optimizer_that_is_built_stays_so(flavour: Any, trained: Any) -> None:
    path = trained(adam)
    model = net(flavour, adam)
    model.fit(*BATCH, batch_size=4, epochs=1, verbose=0)
    before = values(model)
    plan(path, {"model": model})
    refused(path, {"model": model})
    after = values(model)
    assert before.keys() == after.keys()
    assert all(map(np.array_equal, before.values(), after.values()))
