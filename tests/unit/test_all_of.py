"""Several checkpoints in one restore: all of it from where it is said, or nothing at all."""

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

BODY: dict[str, Any] = {"include": ["model/body/**"]}
HEAD: dict[str, Any] = {"include": ["model/head/**"]}
NOTHING: dict[str, Any] = {"exclude": ["**"], "allow_empty": True}


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)


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


def test_the_strictest_check_of_the_policies_is_made(model) -> None:
    """The first says that nothing is checked beforehand, the second that all is."""
    model(1, "a/ckpt"), model(2, "b/ckpt")
    target = model(3)
    damage("a/ckpt-1")
    first = {"path": "a/ckpt-1", "policy": {**BODY, "verify": "none"}}
    with untouched(target), pytest.raises(tfckpt.DamagedCheckpointError, match="a/ckpt-1"):
        tfckpt.restore(config(first, {"path": "b/ckpt-1", "policy": HEAD}), model=target)


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


def test_no_training_goes_on(model) -> None:
    """Neither epoch nor save counter, nor the state of a Dropout."""
    a = model(1)
    run = tfckpt.from_config({"version": 1, "manager": {"directory": "a"}}, model=a)
    run.save(epoch=7)
    model(3, "b/ckpt")
    target = model(2)
    random = [v.numpy() for v in target.variables if "seed" in v.name]
    run = tfckpt.from_config(
        config({"directory": "a"}, {"directory": "b", "policy": NOTHING}),
        model=target,
    )
    report = run.restore()
    assert (run.epoch, int(run.checkpoint.save_counter), report.epoch) == (0, 0, None)
    np.testing.assert_equal([v.numpy() for v in target.variables if "seed" in v.name], random)
    np.testing.assert_equal(weights(target, "head"), weights(a, "head"))


# Which checkpoints


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


def save(prefix: str, value: float) -> str:
    return tfckpt.Checkpoint(x=tf.Variable(value), y=tf.Variable(value)).save(prefix)


def test_it_stands_below_first_of(scalars) -> None:
    save("a/ckpt", 1.0), save("b/ckpt", 2.0)
    both = {"all_of": [{"directory": "a", "policy": X}, {"path": "b/ckpt-1", "policy": Y}]}
    declared = {"version": 1, "restore": {"first_of": [{"directory": "run"}, both]}}
    assert scalars(declared)[:2] == (1, 2)
    save("run/ckpt", 3.0)
    assert scalars(declared)[:2] == (3, 3)


def test_half_of_it_is_an_error_whatever_if_none_says(scalars) -> None:
    save("a/ckpt", 1.0)
    for absent in ({"path": "b/ckpt-1"}, {"directory": "b"}, {"average": ["b/1", "b/2"]}):
        declared = config({"directory": "a"}, {**absent, "policy": Y}, if_none="initialize")
        with pytest.raises(tfckpt.CheckpointNotFoundError) as caught:
            scalars(declared)
        assert "all_of: no checkpoint in b" in str(caught.value)
        assert "but there is one in a" in str(caught.value)


def test_none_of_it_is_as_a_source_that_holds_none(scalars) -> None:
    absent = config({"path": "a/ckpt-1", "policy": X}, {"directory": "b", "policy": Y})
    with pytest.raises(tfckpt.CheckpointNotFoundError, match="no checkpoint in a/ckpt-1 with b"):
        scalars(absent)
    absent["restore"]["if_none"] = "initialize"
    *values, report = scalars(absent)
    assert values == [-1, -1]
    assert report.rejected == ("no checkpoint at a/ckpt-1",)
    save("c/ckpt", 3.0)
    first_of = [{"all_of": absent["restore"]["all_of"]}, {"directory": "c"}]
    assert scalars({"version": 1, "restore": {"first_of": first_of}})[:2] == (3, 3)


def test_of_each_directory_the_newest_that_can_be_read(scalars) -> None:
    for value in (1.0, 2.0, 3.0):
        save("a/ckpt", value), save("b/ckpt", 10 * value)
    damage("a/ckpt-3")
    Path("b/ckpt-3.index").write_bytes(b"torn")
    *values, report = scalars(
        config({"directory": "a", "policy": X}, {"directory": "b", "policy": Y})
    )
    assert values == [2, 20]
    assert sorted(reason[:8] for reason in report.rejected) == ["a/ckpt-3", "b/ckpt-3"]


@pytest.mark.parametrize("kind", ["directory", "path"])
def test_on_damaged_goes_on_to_the_next_source(scalars, kind) -> None:
    save("a/ckpt", 1.0), save("b/ckpt", 2.0), save("c/ckpt", 3.0)
    damage("b/ckpt-1")
    second = {"directory": "b"} if kind == "directory" else {"path": "b/ckpt-1"}
    both = {"all_of": [{"directory": "a", "policy": X}, {**second, "policy": Y}]}
    declared = {"version": 1, "restore": {"first_of": [both, {"directory": "c"}]}}
    with pytest.raises(tfckpt.DamagedCheckpointError, match="b/ckpt-1"):
        scalars(declared)
    both["on_damaged"] = "next"  # type: ignore[assignment]
    assert scalars(declared)[:2] == (3, 3)


def test_the_problem_of_a_member_has_its_line(tmp_path, model) -> None:
    model(1, "a/ckpt"), model(2, "b/ckpt")
    text = (
        "version: 1\nrestore:\n  all_of:\n"
        "    - {path: a/ckpt-1, policy: {include: ['model/body/**']}}\n"
        "    - path: b/ckpt-1\n      policy:\n"
        "        include: ['model/head/**']\n        exclude: ['model/hed/**']\n"
    )
    (tmp_path / "c.yaml").write_text(text)
    plan = tfckpt.plan(tmp_path / "c.yaml", model=model(3))
    (problem,) = plan.problems
    assert (problem.line, problem.column) == (8, 19)
    assert problem.message == "b/ckpt-1: exclude: 'model/hed/**' matches nothing"
