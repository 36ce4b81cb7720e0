"""An iterator's place goes into the data set that it was saved with, or nowhere."""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import tensorflow as tf

import tfckpt
from tfckpt.live import data

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

RANGE = tf.data.Dataset.range
SLICES = tf.data.Dataset.from_tensor_slices


def generated() -> tf.data.Dataset:
    spec = tf.TensorSpec([], tf.int64)
    return tf.data.Dataset.from_generator(lambda: iter(range(10)), output_signature=spec)


def add_one(x: Any) -> Any:
    return x + 1


def times_ten(x: Any) -> Any:
    return x * 10


def nothing_else(_: Any) -> dict[str, Any]:
    return {"step": tf.Variable(0)}


def model_beside(k: Any) -> dict[str, Any]:
    return {"model": k.Sequential([k.Input((2,)), k.layers.Dense(2, name="d")])}


def by_checkpoint(path: str, **objects: Any) -> Any:
    return tfckpt.Checkpoint(**objects).restore(path)


def by_policy(path: str, **objects: Any) -> Any:
    state = ["iterator", "epoch", "batch", "seeds", "callbacks"]
    return tfckpt.restore(path, policy={"training_state": state}, **objects)


@pytest.fixture(params=[nothing_else, model_beside])
def beside(request: pytest.FixtureRequest, flavour: Any) -> Callable[[], dict[str, Any]]:
    return lambda: request.param(flavour)


@pytest.fixture
def save(tmp_path: Path, beside: Any) -> Callable[[tf.data.Dataset], str]:
    """Three elements on."""

    def save(dataset: tf.data.Dataset) -> str:
        it = iter(dataset)
        for _ in range(3):
            next(it)
        return tfckpt.Checkpoint(it=it, **beside()).save(tmp_path / "ckpt")

    return save


ways = pytest.mark.parametrize("restore", [by_checkpoint, by_policy])


@ways
@pytest.mark.parametrize(
    ("then", "now", "why"),
    [
        (RANGE(10), RANGE(100), "has 10 elements in the checkpoint and 100 elements in the model"),
        (
            RANGE(10),
            RANGE(10).repeat(),
            "has 10 elements in the checkpoint and infinitely many elements in the",
        ),
        (RANGE(20).batch(2), RANGE(20).batch(4), "10 elements in the checkpoint and 5 elements"),
        (RANGE(10), SLICES(np.arange(10, dtype=np.int32)), "yields .*int64.* and .*int32"),
        (RANGE(10), RANGE(10).batch(1), r"yields .*shape=\(\).*shape=\(None,\)"),
    ],
)
def test_other_elements_are_refused(
    save: Any, beside: Any, restore: Any, then: Any, now: Any, why: str
) -> None:
    path, it = save(then), iter(now)
    first, second = next(iter(now)), next(iter(now.skip(1)))
    np.testing.assert_array_equal(next(it), first)
    with pytest.raises(tfckpt.RefusedError) as refused:
        restore(path, it=it, **beside())
    (step,) = refused.value.plan.errors
    assert step.name == "it"
    assert re.search(why, step.reason)
    assert "to start the data from the beginning" in step.hint
    np.testing.assert_array_equal(next(it), second)


@ways
@pytest.mark.parametrize(
    ("then", "now"),
    [
        (RANGE(10).map(add_one), RANGE(10).map(times_ten)),
        (SLICES(np.arange(10)), SLICES(np.arange(10) * 7)),
        (RANGE(10), RANGE(50, 60)),
        (RANGE(10).shuffle(3), RANGE(10).shuffle(4)),
    ],
)
def test_another_pipeline_is_said(
    save: Any, beside: Any, restore: Any, then: Any, now: Any, caplog: pytest.LogCaptureFixture
) -> None:
    path = save(then)
    with caplog.at_level(logging.WARNING):
        restore(path, it=iter(now), **beside())
    assert (
        "it: its dataset was built from other data or with other operations when it was saved"
        in caplog.text
    )


@ways
@pytest.mark.parametrize(
    "make",
    [
        lambda: RANGE(10),
        lambda: RANGE(10).map(add_one).shuffle(3, seed=4).batch(2).prefetch(1),
        lambda: SLICES({"a": np.arange(10), "b": np.ones((10, 3))}).repeat(),
        lambda: RANGE(10).cache().shuffle(10, seed=1).batch(1),
    ],
)
def test_the_same_pipeline_goes_on_without_a_word(
    save: Any, beside: Any, restore: Any, make: Any, caplog: pytest.LogCaptureFixture
) -> None:
    path, it, expected = save(make()), iter(make()), iter(make())
    with caplog.at_level(logging.WARNING):
        restore(path, it=it, **beside())
    for _ in range(3):
        next(expected)
    tf.nest.map_structure(np.testing.assert_array_equal, next(it), next(expected))
    assert "data set" not in caplog.text


@ways
@pytest.mark.parametrize("now", [RANGE(10).shuffle(5, seed=3), SLICES(np.arange(10))])
def test_what_does_not_take_the_place_goes_on(
    save: Any, beside: Any, restore: Any, now: tf.data.Dataset
) -> None:
    path, objects = save(RANGE(10)), beside()
    it = iter(now)
    first = int(next(it))
    before = [np.array(v) for v in tf.nest.flatten(_values(objects))]
    with pytest.raises(tfckpt.RestoreError, match="does not fit its dataset") as refused:
        restore(path, it=it, **objects)
    assert not isinstance(refused.value, (tf.errors.NotFoundError, FileNotFoundError))
    assert sorted(map(int, it)) == [n for n in range(10) if n != first]
    for old, new in zip(before, tf.nest.flatten(_values(objects)), strict=True):
        np.testing.assert_array_equal(old, new)


def _values(objects: dict[str, Any]) -> Any:
    return objects["model"].get_weights() if "model" in objects else objects["step"]


@ways
def test_one_whose_place_cannot_be_saved_goes_on(save: Any, beside: Any, restore: Any) -> None:
    path, it = save(RANGE(10)), iter(generated())
    next(it)
    with pytest.raises(tfckpt.RestoreError, match=r"no variable was changed: (?!{{)"):
        restore(path, it=it, **beside())
    assert [int(x) for x in it] == [*range(1, 10)]


def test_by_name_it_is_taken_all_the_same(save: Any, beside: Any) -> None:
    path, it = save(RANGE(10)), iter(RANGE(100))
    policy = {"match": ["name"], "training_state": ["iterator", "epoch", "batch"]}
    tfckpt.restore(path, policy=policy, it=it, **beside())
    assert next(it) == 3


@pytest.mark.parametrize(
    "make",
    [
        lambda _: RANGE(10).cache().map(add_one),
        lambda path: RANGE(10).snapshot(path),
        lambda _: tf.data.Dataset.random(seed=1, rerandomize_each_iteration=True),
    ],
)
def test_a_fingerprint_that_is_new_each_time_is_not_taken(make: Any, tmp_path: Path) -> None:
    found = [make(str(tmp_path / "files")) for _ in range(20)]
    assert len({int(each.fingerprint()) for each in found}) > 1
    assert data.dataset_of(iter(found[0])).fingerprint == ""
