"""Which checkpoint a config means, and several in one restore."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import tensorflow as tf

import tfckpt

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)


def save(prefix: str, value: float, **more: Any) -> str:
    """A checkpoint of ``value``, written by tfckpt; ``prefix`` is without the number."""
    checkpoint = tfckpt.Checkpoint(value=tf.Variable(value), **more)
    return checkpoint.save(prefix)


def flip_a_bit(path: str) -> None:
    """Damage that shows when the value is read; one bit of each byte, wherever the value is."""
    for data in Path(path).parent.glob(Path(path).name + ".data-*"):
        data.write_bytes(bytes(byte ^ 1 for byte in data.read_bytes()))


def tear_the_index(path: str) -> None:
    """Damage that shows when the checkpoint is opened."""
    Path(path + ".index").write_bytes(b"torn")


@pytest.fixture
def restored() -> Callable[..., tuple[float, Any]]:
    """``restored([source, …])``: the value that comes back, and the report."""

    def restore(first_of: list[dict[str, Any]], **more: Any) -> tuple[float, Any]:
        value = tf.Variable(-1.0)
        config = {"version": 1, "restore": {"first_of": first_of, **more}}
        try:
            report = tfckpt.restore(config, value=value)
        except tfckpt.TfckptError:
            assert value.numpy() == -1
            raise
        return float(value.numpy()), report

    return restore


DAMAGES = pytest.mark.parametrize("damage", [flip_a_bit, tear_the_index])


def test_the_first_source_that_holds_one_wins(restored) -> None:
    save("a/ckpt", 1.0)
    save("b/ckpt", 2.0)
    assert restored([{"directory": "a"}, {"directory": "b"}])[0] == 1
    assert restored([{"directory": "b"}, {"directory": "a"}])[0] == 2
    assert restored([{"path": "b/ckpt-1"}, {"directory": "a"}])[0] == 2


@pytest.mark.parametrize(
    ("nothing", "rejected"),
    [
        ({"directory": "none"}, ()),
        ({"directory": "empty"}, ()),
        ({"path": "none/ckpt-1"}, ("no checkpoint at none/ckpt-1",)),
        ({"path": "empty/best"}, ("no checkpoint at empty/best",)),
    ],
)
def test_a_source_that_holds_none_falls_through(restored, nothing, rejected) -> None:
    Path("empty").mkdir()
    save("b/ckpt", 2.0)
    value, report = restored([nothing, {"directory": "b"}])
    assert value == 2
    assert report.rejected == rejected


def test_a_path_with_nothing_there_is_named_where_the_start_is_fresh(restored) -> None:
    sources = [{"directory": "none"}, {"path": "zoo/imagnet/ckpt-900"}]
    value, report = restored(sources, if_none="initialize")
    assert value == -1
    assert report.rejected == ("no checkpoint at zoo/imagnet/ckpt-900",)
    assert "zoo/imagnet/ckpt-900" in str(report)
    with pytest.raises(tfckpt.CheckpointNotFoundError, match="imagnet"):
        restored(sources)


def test_none_anywhere_is_an_error_unless_said(restored) -> None:
    sources = [{"directory": "none"}, {"path": "nowhere/ckpt-1"}]
    with pytest.raises(tfckpt.CheckpointNotFoundError, match="none, nowhere/ckpt-1"):
        restored(sources)
    with pytest.raises(tfckpt.CheckpointNotFoundError) as caught:
        restored(sources, if_none="error")
    assert "if_none" not in str(caught.value)  # an invitation to a start from scratch
    value, report = restored(sources, if_none="initialize")
    assert value == -1
    assert report.path == ""
    assert not report.restored


@DAMAGES
def test_where_all_are_damaged_nothing_else_is_restored(restored, damage) -> None:
    damage(save("run/ckpt", 1.0))
    save("zoo/ckpt", 2.0)
    with pytest.raises(tfckpt.DamagedCheckpointError, match="ckpt-1") as error:
        restored([{"directory": "run"}, {"directory": "zoo"}], if_none="initialize")
    assert "on_damaged: next" in str(error.value)
    with pytest.raises(tfckpt.DamagedCheckpointError):
        restored([{"path": "run/ckpt-1"}, {"directory": "zoo"}], if_none="initialize")


def test_data_without_an_index_is_no_fresh_start(restored) -> None:
    Path("run").mkdir()
    Path("run/ckpt-1.data-00000-of-00001").write_bytes(b"debris")
    with pytest.raises(tfckpt.DamagedCheckpointError, match="ckpt-1: has data but no index"):
        restored([{"directory": "run"}], if_none="initialize")


@DAMAGES
@pytest.mark.parametrize("source", [{"directory": "run"}, {"path": "run/ckpt-1"}])
def test_on_damaged_next_goes_on(restored, damage, source) -> None:
    damage(save("run/ckpt", 1.0))
    save("zoo/ckpt", 2.0)
    value, report = restored([{**source, "on_damaged": "next"}, {"directory": "zoo"}])
    assert value == 2
    assert "run/ckpt-1" in report.rejected[0]


def test_on_damaged_next_with_nothing_after_it_is_no_fresh_start(restored) -> None:
    tear_the_index(save("run/ckpt", 1.0))
    with pytest.raises(tfckpt.DamagedCheckpointError, match="run/ckpt-1"):
        restored([{"directory": "run", "on_damaged": "next"}], if_none="initialize")


def test_a_refused_one_is_an_error_and_older_ones_are_not_tried(restored) -> None:
    save("run/ckpt", 1.0)
    save("run/ckpt", 2.0, extra=tf.Variable(1.0))
    save("zoo/ckpt", 3.0)
    with pytest.raises(tfckpt.RefusedError, match="extra"):
        restored([{"directory": "run"}, {"directory": "zoo"}], if_none="initialize")
    value, report = restored([{"directory": "run", "on_damaged": "next"}, {"directory": "zoo"}])
    assert value == 3
    (reason,) = report.rejected
    assert "extra" in reason


def test_a_number_selects(restored) -> None:
    for number in range(1, 4):
        save("run/ckpt", float(number))
    assert restored([{"directory": "run", "select": 2}])[0] == 2
    assert restored([{"directory": "run", "select": "latest"}])[0] == 3
    with pytest.raises(tfckpt.CheckpointNotFoundError, match="1, 2, 3"):
        restored([{"directory": "run", "select": 7}, {"directory": "b"}], if_none="initialize")
    flip_a_bit("run/ckpt-2")
    with pytest.raises(tfckpt.DamagedCheckpointError):
        restored([{"directory": "run", "select": 2}])


def test_one_whose_record_is_gone_comes_after_the_committed_one(restored) -> None:
    save("run/ckpt", 1.0)
    Path(f"{save('run/ckpt', 2.0)}.tfckpt.json").unlink()
    value, report = restored([{"directory": "run"}])
    assert value == 1
    (reason,) = report.rejected
    assert "ckpt-2: written by tfckpt, but its commit record is missing" in reason
    flip_a_bit("run/ckpt-1")
    value, report = restored([{"directory": "run"}])
    assert value == 2
    assert len(report.rejected) == 2


def test_each_source_has_its_own_policy(restored) -> None:
    save("zoo/ckpt", 5.0, extra=tf.Variable(1.0))
    lenient = {"assert": "existing_objects_matched"}
    assert restored([{"directory": "none"}, {"directory": "zoo", "policy": lenient}])[0] == 5


def test_a_plan_says_what_was_passed_over(caplog) -> None:
    save("run/ckpt", 1.0)
    tear_the_index(save("run/ckpt", 2.0))
    sources = [{"path": "zoo/imagnet/ckpt-900"}, {"directory": "run"}]
    config = {"version": 1, "restore": {"first_of": sources}}
    assert tfckpt.plan(config, value=tf.Variable(-1.0)).source.endswith("ckpt-1")
    assert "zoo/imagnet/ckpt-900" in caplog.text
    assert "run/ckpt-2" in caplog.text


BODY: dict[str, Any] = {"include": ["model/body/**"]}
HEAD: dict[str, Any] = {"include": ["model/head/**"]}


@pytest.fixture
def model(flavour) -> Callable[..., Any]:
    """``model(seed)``: a trained one, saved under the prefix where one is given."""

    def build(seed: int, prefix: str = "", units: int = 3) -> Any:
        network = flavour.Sequential(
            [
                flavour.Input((4,)),
                flavour.layers.Dense(units, name="body"),
                flavour.layers.Dropout(0.5),
                flavour.layers.Dense(2, name="head"),
            ]
        )
        network.compile("adam", "mse")
        random = np.random.default_rng(seed)
        network.set_weights([random.uniform(0.1, 1, w.shape) for w in network.get_weights()])
        network.optimizer.build(network.trainable_variables)
        if prefix:
            tfckpt.Checkpoint(model=network).save(prefix)
        return network

    return build


def config(*members: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"version": 1, "restore": {"all_of": list(members), **more}}


def weights(network: Any, layer: str) -> list[np.ndarray]:
    return [np.array(w) for w in network.get_layer(layer).get_weights()]


def everything(network: Any) -> list[np.ndarray]:
    return [v.numpy() for v in (*network.variables, *network.optimizer.variables)]


@contextlib.contextmanager
def untouched(network: Any) -> Iterator[None]:
    before = everything(network)
    yield
    for new, old in zip(everything(network), before, strict=True):
        np.testing.assert_array_equal(new, old)


def damage(prefix: str) -> None:
    (data,) = Path(prefix).parent.glob(f"{Path(prefix).name}.data-*")
    data.write_bytes(bytes(byte ^ 1 for byte in data.read_bytes()))


def test_the_encoder_from_one_and_the_head_from_another(model) -> None:
    a, b, target = model(1, "a/ckpt"), model(2, "b/ckpt"), model(3)
    slots = [v.numpy() for v in target.optimizer.variables]
    report = tfckpt.restore(
        config({"path": "a/ckpt-1", "policy": BODY}, {"directory": "b", "policy": HEAD}),
        model=target,
    )
    np.testing.assert_equal(weights(target, "body"), weights(a, "body"))
    np.testing.assert_equal(weights(target, "head"), weights(b, "head"))
    for new, old in zip(target.optimizer.variables, slots, strict=True):
        np.testing.assert_array_equal(new.numpy(), old)
    assert report.path == "a/ckpt-1, b/ckpt-1"
    assert "LOADED  2 values from a/ckpt-1" in str(report)


def test_a_checkpoint_and_an_average(model) -> None:
    a, b, c = (model(seed, f"{name}/ckpt") for seed, name in enumerate("abc"))
    target = model(9)
    average = {"average": ["b/ckpt-1", "c/ckpt-1"], "weights": [3, 1], "policy": HEAD}
    tfckpt.restore(config({"path": "a/ckpt-1", "policy": BODY}, average), model=target)
    np.testing.assert_equal(weights(target, "body"), weights(a, "body"))
    for got, *values in zip(*(weights(m, "head") for m in (target, b, c)), strict=True):
        expected = np.average(np.asarray(values, "f8"), axis=0, weights=[3, 1])
        np.testing.assert_array_equal(got, expected.astype("f4"))


@pytest.mark.parametrize("verify", ["checksums", "values", "none"])
def test_a_damaged_second_one_changes_nothing(model, verify) -> None:
    model(1, "a/ckpt"), model(2, "b/ckpt")
    target = model(3)
    damage("b/ckpt-1")
    members = [
        {"path": "a/ckpt-1", "policy": {**BODY, "verify": verify}},
        {"path": "b/ckpt-1", "policy": {**HEAD, "verify": verify}},
    ]
    for order in (members, members[::-1]):
        with untouched(target), pytest.raises(tfckpt.DamagedCheckpointError, match="b/ckpt-1"):
            tfckpt.restore(config(*order), model=target)


def test_one_value_from_two_sources_is_refused_and_nothing_changes(model) -> None:
    model(1, "a/ckpt"), model(2, "b/ckpt")
    target = model(3)
    with untouched(target), pytest.raises(tfckpt.RefusedError) as caught:
        tfckpt.restore(
            config({"path": "a/ckpt-1"}, {"path": "b/ckpt-1", "policy": HEAD}), model=target
        )
    assert {step.name for step in caught.value.plan.errors} == {
        "model/head/bias",
        "model/head/kernel",
    }
    for step in caught.value.plan.errors:
        assert "a/ckpt-1 (policy 'strict') and b/ckpt-1 (policy 'policy')" in step.reason


def test_what_no_source_has_is_an_error_and_nothing_changes(model) -> None:
    model(1, "a/ckpt"), model(2, "b/ckpt")
    target = model(3)
    only_bias = {"exclude": ["optimizer/**"], "exclude_checkpoint": ["model/*/kernel"]}
    with untouched(target), pytest.raises(tfckpt.RefusedError) as caught:
        tfckpt.restore(
            config({"path": "a/ckpt-1", "policy": BODY}, {"path": "b/ckpt-1", "policy": only_bias}),
            model=target,
        )
    names = {step.name: step.status.value for step in caught.value.plan.errors}
    assert names == {"model/body/bias": "MISMATCH", "model/head/kernel": "MISSING"}


@pytest.fixture
def scalars() -> Callable[..., tuple[float, float, Any]]:
    """``scalars(config)``: restore ``x`` and ``y``, which are −1 before."""

    def restore(declared: dict[str, Any]) -> tuple[float, float, Any]:
        x, y = tf.Variable(-1.0), tf.Variable(-1.0)
        try:
            report = tfckpt.restore(declared, x=x, y=y)
        except tfckpt.TfckptError:
            assert (float(x), float(y)) == (-1, -1)
            raise
        return float(x), float(y), report

    return restore


X, Y = {"include": ["x"]}, {"include": ["y"]}


def save_member(prefix: str, value: float) -> str:
    return tfckpt.Checkpoint(x=tf.Variable(value), y=tf.Variable(value)).save(prefix)


def test_half_of_it_is_an_error_whatever_if_none_says(scalars) -> None:
    save_member("a/ckpt", 1.0)
    for absent in ({"path": "b/ckpt-1"}, {"directory": "b"}, {"average": ["b/1", "b/2"]}):
        declared = config({"directory": "a"}, {**absent, "policy": Y}, if_none="initialize")
        with pytest.raises(tfckpt.CheckpointNotFoundError) as caught:
            scalars(declared)
        assert "all_of: no checkpoint in b" in str(caught.value)
        assert "but there is one in a" in str(caught.value)


@pytest.mark.parametrize("kind", ["directory", "path"])
def test_on_damaged_goes_on_to_the_next_source(scalars, kind) -> None:
    save_member("a/ckpt", 1.0), save_member("b/ckpt", 2.0), save_member("c/ckpt", 3.0)
    damage("b/ckpt-1")
    second = {"directory": "b"} if kind == "directory" else {"path": "b/ckpt-1"}
    both = {"all_of": [{"directory": "a", "policy": X}, {**second, "policy": Y}]}
    declared = {"version": 1, "restore": {"first_of": [both, {"directory": "c"}]}}
    with pytest.raises(tfckpt.DamagedCheckpointError, match="b/ckpt-1"):
        scalars(declared)
    both["on_damaged"] = "next"  # type: ignore[assignment]
    assert scalars(declared)[:2] == (3, 3)
