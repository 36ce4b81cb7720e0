"""What a run is given: numbers, configs and objects that it cannot use are refused in words."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

import tfckpt

NO_NUMBERS = [
    {"epoch": -1},
    {"epoch": 1.5},
    {"epoch": "3"},
    {"epoch": True},
    {"epoch": 2**63},
    {"metrics": {"loss": "0.5"}},
    {"metrics": {"loss": None}},
    {"metrics": {"loss": "low"}},
    {"metrics": {"loss": 10**400}},
    {"metrics": {"loss": [0.5, 0.25]}},
    {"metrics": {3: 0.5}},
]


@pytest.mark.parametrize("wrong", NO_NUMBERS, ids=lambda wrong: str(wrong)[:30])
def test_what_no_record_can_hold_is_refused_before_anything_is_written(tmp_path, wrong) -> None:
    run = tfckpt.from_config(
        {"version": 1, "manager": {"directory": str(tmp_path / "run")}}, value=tf.Variable(1.0)
    )
    with pytest.raises(tfckpt.SaveError, match=r"epoch|metric"):
        run.save(**wrong)
    assert not (tmp_path / "run").exists()
    assert (run.epoch, int(run.checkpoint.save_counter)) == (0, 0)
    assert run.save().endswith("ckpt-1")


def test_a_step_below_zero_is_refused_before_anything_is_written(tmp_path) -> None:
    step = tf.Variable(-1)
    run = tfckpt.from_config(
        {"version": 1, "manager": {"directory": str(tmp_path / "run")}}, step=step
    )
    with pytest.raises(tfckpt.SaveError, match=r"step .* found -1"):
        run.save()
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("wrong", ["x", [1, 2], float("nan")], ids=str)
def test_a_step_that_counts_nothing_is_refused_at_once(tmp_path, wrong) -> None:
    declared = {"version": 1, "manager": {"directory": str(tmp_path / "run")}}
    with pytest.raises(tfckpt.TfckptError, match="another keyword"):
        tfckpt.from_config(declared, step=tf.Variable(wrong))
    assert not (tmp_path / "run").exists()


def test_numbers_of_numpy_and_tensorflow_are_numbers(tmp_path) -> None:
    declared = {
        "version": 1,
        "manager": {"directory": str(tmp_path)},
        "restore": {"directory": str(tmp_path)},
    }
    run = tfckpt.from_config(declared, step=tf.Variable(7))
    metrics = {"a": np.float32(0.5), "b": tf.constant(0.25), "c": np.int64(3), "d": float("nan")}
    for epoch in (np.int64(3), np.array(3), tf.constant(3), 3):
        run.save(epoch=epoch, metrics=metrics)
        report = tfckpt.restore(declared, step=tf.Variable(0))
        assert (report.epoch, report.step, run.epoch) == (3, 7, 3)
        np.testing.assert_equal(dict(report.metrics), {"a": 0.5, "b": 0.25, "c": 3, "d": np.nan})


def test_an_inventory_refuses_what_a_checkpoint_refuses() -> None:
    for wrong in (5, None, "model"):
        with pytest.raises(ValueError, match="trackable"):
            tf.train.Checkpoint(model=wrong)
        with pytest.raises(tfckpt.UntrackedError, match="`model` is "):
            tfckpt.inventory(model=wrong)


@pytest.mark.parametrize("wrong", [None, 3, ["a.yaml"], b"a.yaml"])
def test_what_is_no_config_is_refused_in_words(wrong) -> None:
    with pytest.raises(tfckpt.PolicyError, match="expected the path of a YAML file"):
        tfckpt.from_config(wrong, value=tf.Variable(0))


@pytest.mark.parametrize("loss", [float("inf"), float("nan")])
def test_a_loss_that_went_off_does_not_stop_the_saves(tmp_path, loss) -> None:
    directory = str(tmp_path / "run")
    place = {"directory": directory}
    declared = {"version": 1, "manager": place, "restore": place}
    value = tf.Variable(1.0)
    tfckpt.from_config(declared, value=value).save(metrics={"loss": loss})
    assert str(tfckpt.restore(declared, value=value).metrics["loss"]) == str(loss)
