"""Averages of checkpoints against NumPy's."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import tensorflow as tf

import tfckpt

if TYPE_CHECKING:
    from collections.abc import Callable

SEED = 20
DTYPES = ("float16", "bfloat16", "float32", "float64", "complex64")


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)


def draw(random: np.random.Generator) -> dict[str, np.ndarray]:
    """A value of each type; integers and text that are the same in all checkpoints."""
    values = {
        dtype: random.normal(size=(3, 2)).astype(tf.as_dtype(dtype).as_numpy_dtype)
        for dtype in DTYPES
    }
    return {**values, "same": np.arange(3), "text": np.array([b"a", b"b"])}


def variables(values: dict[str, Any]) -> dict[str, tf.Variable]:
    return {name: tf.Variable(value, name=name) for name, value in values.items()}


def save(prefix: str, values: dict[str, Any]) -> str:
    return tfckpt.Checkpoint(values=variables(values)).write(prefix)


def restored(live: dict[str, Any], average: Any, policy: Any = None, **more: Any) -> Any:
    source = {"average": average, "policy": policy or {}, **more}
    return tfckpt.restore({"version": 1, "restore": source}, values=live)


@pytest.mark.parametrize("weights", [None, [1, 1, 1], [0.5, 0.3, 0.2], [3, 2.5, 100]])
def test_it_is_numpys_in_every_type(weights) -> None:
    random = np.random.default_rng(SEED)
    drawn = [draw(random) for _ in range(3)]
    paths = [save(f"zoo/{number}", values) for number, values in enumerate(drawn)]
    live = variables({name: np.zeros_like(value) for name, value in drawn[0].items()})
    restored(live, paths, **({"weights": weights} if weights else {}))
    for dtype in DTYPES:
        wide = np.complex128 if dtype == "complex64" else np.float64
        stacked = np.stack([values[dtype].astype(wide) for values in drawn])
        expected = np.average(stacked, axis=0, weights=weights)
        got = live[dtype].numpy()
        assert got.dtype == drawn[0][dtype].dtype
        if dtype == "float64":
            np.testing.assert_allclose(got, expected, rtol=1e-15, err_msg=f"seed {SEED}")
        else:
            np.testing.assert_array_equal(got, expected.astype(got.dtype), f"seed {SEED}")
    np.testing.assert_array_equal(live["same"].numpy(), [0, 1, 2])
    assert live["text"].numpy().tolist() == [b"a", b"b"]


def test_the_average_of_one_checkpoint_with_itself_is_that_checkpoint() -> None:
    values = draw(np.random.default_rng(SEED))
    path = save("zoo/a", values)
    live = variables({name: np.zeros_like(value) for name, value in values.items()})
    restored(live, [path, path])
    for name, value in values.items():
        np.testing.assert_array_equal(live[name].numpy(), value)


def test_integers_that_differ_are_left_out_with_the_reason() -> None:
    paths = [
        save(f"zoo/{count}", {"count": np.int64(count), "w": np.float32(count)}) for count in (2, 4)
    ]
    live = variables({"count": np.int64(-1), "w": np.float32(-1)})
    with pytest.raises(tfckpt.RefusedError, match="left out of the checkpoint: int64 is not aver"):
        restored(live, paths)
    assert (live["count"].numpy(), live["w"].numpy()) == (-1, -1)
    restored(live, paths, {"expect_missing": ["values/count"]})
    assert (live["count"].numpy(), live["w"].numpy()) == (-1, 3)


OTHERS: dict[str, dict[str, Any]] = {
    "is missing, but zoo/a has it": {"v": np.zeros(2, "f4")},
    "is not in zoo/a": {
        "w": np.zeros(2, "f4"), "v": np.zeros(2, "f4"), "u": np.zeros(2, "f4"),
    },
    "is float32 (3,), but float32 (2,) in zoo/a": {
        "w": np.zeros(3, "f4"), "v": np.zeros(2, "f4"),
    },
    "is float64 (2,), but float32 (2,) in zoo/a": {
        "w": np.zeros(2, "f8"), "v": np.zeros(2, "f4"),
    },
}  # fmt: skip


@pytest.mark.parametrize("said", OTHERS)
def test_checkpoints_that_are_not_alike_are_refused(said) -> None:
    save("zoo/a", {"w": np.ones(2, "f4"), "v": np.ones(2, "f4")})
    save("zoo/b", OTHERS[said])
    live = variables({"w": np.full(2, 7, "f4"), "v": np.full(2, 7, "f4")})
    with pytest.raises(tfckpt.UnsupportedCheckpointError) as caught:
        restored(live, ["zoo/a", "zoo/b"])
    assert caught.value.path == "zoo/b"
    assert caught.value.name in {"values/w", "values/u"}
    assert said in str(caught.value)
    assert [value.numpy().tolist() for value in live.values()] == [[7, 7], [7, 7]]


@pytest.fixture
def trained(flavour) -> Callable[[int, str], Any]:
    """``trained(seed, path)``: a model with an optimizer, saved by its manager."""

    def build(seed: int, directory: str = "") -> Any:
        model = flavour.Sequential(
            [
                flavour.Input((4,)),
                flavour.layers.Dense(3, name="body"),
                flavour.layers.BatchNormalization(name="norm"),
                flavour.layers.Dense(2),
            ]
        )
        random = np.random.default_rng(seed)
        model.compile("adam", "mse")
        model.set_weights([random.uniform(0.1, 1, w.shape) for w in model.get_weights()])
        model.optimizer.build(model.trainable_variables)
        if directory:
            checkpoint = tfckpt.Checkpoint(model=model)
            tfckpt.CheckpointManager(checkpoint, directory, max_to_keep=None).save()
        return model

    return build


def test_the_last_checkpoints_of_a_run(trained) -> None:
    model = trained(1)
    manager = tfckpt.CheckpointManager(tfckpt.Checkpoint(model=model), "run", max_to_keep=None)
    saved = []
    for _ in range(3):
        model.set_weights([weight + 1 / 3 for weight in model.get_weights()])
        manager.save()
        saved.append(model.get_weights())
    other = trained(2)
    slots = [v.numpy() for v in other.optimizer.variables]
    config = {"version": 1, "restore": {"average": {"directory": "run", "latest": 2}}}
    report = tfckpt.restore(config, model=other)
    for got, *values in zip(other.get_weights(), *saved[1:], strict=True):
        np.testing.assert_array_equal(got, np.mean(values, axis=0, dtype="f8").astype("f4"))
    for variable, old in zip(other.optimizer.variables, slots, strict=True):
        np.testing.assert_array_equal(variable.numpy(), old)
    assert "only weights are averaged" in str(report)
    assert report.path == "the average of run/ckpt-3 and run/ckpt-2"
    assert (report.step, report.epoch) == (None, None)
    config["restore"]["average"]["latest"] = 4
    with pytest.raises(
        tfckpt.CheckpointNotFoundError, match="run: has 3 checkpoints, but `latest: 4`"
    ):
        tfckpt.restore(config, model=other)


def test_a_member_that_is_absent_or_damaged_changes_nothing(trained) -> None:
    trained(1, "a")
    trained(2, "b")
    model = trained(3)
    before = model.get_weights()

    def refused(*paths: str) -> str:
        config = {"version": 1, "restore": {"average": list(paths), "policy": {}}}
        with pytest.raises(tfckpt.CheckpointError) as caught:
            tfckpt.restore(config, model=model)
        for got, old in zip(model.get_weights(), before, strict=True):
            np.testing.assert_array_equal(got, old)
        return str(caught.value)

    assert "c/ckpt-1" in refused("a/ckpt-1", "c/ckpt-1")
    data = Path("b/ckpt-1.data-00000-of-00001")
    content = data.read_bytes()
    data.write_bytes(bytes(byte ^ 1 for byte in content))
    assert "b/ckpt-1" in refused("a/ckpt-1", "b/ckpt-1")


def test_layers_in_another_order_are_refused(flavour) -> None:
    def model(*names: str) -> Any:
        layers = [flavour.layers.Dense(4, name=name) for name in names]
        return flavour.Sequential([flavour.Input((4,)), *layers])

    for number, names in enumerate((("x", "y"), ("y", "x"))):
        tfckpt.Checkpoint(model=model(*names)).write(f"zoo/{number}")
    config = {"version": 1, "restore": {"average": ["zoo/0", "zoo/1"]}}
    with pytest.raises(
        tfckpt.UnsupportedCheckpointError, match="in a different order than in zoo/0"
    ):
        tfckpt.plan(config, model=model("x", "y"))
