"""Which checkpoint a config means: ``first_of``, and when it falls through."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import tensorflow as tf

import tfckpt

if TYPE_CHECKING:
    from collections.abc import Callable


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


def test_a_path_with_nothing_there_does_not_hide_damage_after_it(restored) -> None:
    tear_the_index(save("run/ckpt", 1.0))
    with pytest.raises(tfckpt.DamagedCheckpointError, match="run/ckpt-1"):
        restored([{"path": "none/ckpt-1"}, {"directory": "run"}], if_none="initialize")


def test_a_directory_of_other_checkpoints_holds_none_of_the_name(restored) -> None:
    save("a/other", 1.0)
    save("b/ckpt", 2.0)
    assert restored([{"directory": "a"}, {"directory": "b"}])[0] == 2
    assert restored([{"directory": "a", "checkpoint_name": "other"}])[0] == 1


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


@pytest.mark.parametrize(
    "misspelt", ["zoo/ckpt", "zoo/ckpt-1.index", "zoo/ckpt-2", "zoo", "zoo/checkpoint"]
)
def test_a_misspelt_path_is_no_fresh_start(restored, misspelt) -> None:
    save("zoo/ckpt", 1.0)
    save("b/ckpt", 2.0)
    with pytest.raises(tfckpt.CheckpointNotFoundError, match="zoo"):
        restored([{"path": misspelt}, {"directory": "b"}], if_none="initialize")


@DAMAGES
def test_a_damaged_newest_one_gives_way_to_the_one_before(restored, damage) -> None:
    checkpoint = tfckpt.Checkpoint(value=tf.Variable(1.0))
    checkpoint.save("run/ckpt")
    checkpoint.value.assign(2.0)
    checkpoint.save("run/ckpt")
    checkpoint.value.assign(3.0)
    newest = checkpoint.save("run/ckpt")
    damage(newest)
    value, report = restored([{"directory": "run"}, {"directory": "none"}])
    assert value == 2
    assert report.path.endswith("ckpt-2")
    (reason,) = report.rejected
    assert "ckpt-3" in reason
    assert reason in str(report)
    assert reason in report.to_json()["rejected"]


@DAMAGES
def test_where_all_are_damaged_nothing_else_is_restored(restored, damage) -> None:
    damage(save("run/ckpt", 1.0))
    save("zoo/ckpt", 2.0)
    with pytest.raises(tfckpt.DamagedCheckpointError, match="ckpt-1") as error:
        restored([{"directory": "run"}, {"directory": "zoo"}], if_none="initialize")
    assert "on_damaged: next" in str(error.value)
    with pytest.raises(tfckpt.DamagedCheckpointError):
        restored([{"path": "run/ckpt-1"}, {"directory": "zoo"}], if_none="initialize")


def test_a_directory_whose_only_checkpoint_lost_its_index_is_damaged(restored) -> None:
    Path(save("run/ckpt", 1.0) + ".index").unlink()
    save("zoo/ckpt", 2.0)
    sources = [{"directory": "run"}, {"directory": "zoo"}]
    with pytest.raises(tfckpt.DamagedCheckpointError, match="run/ckpt-1"):
        restored(sources, if_none="initialize")
    with pytest.raises(tfckpt.DamagedCheckpointError, match="run/ckpt-1"):
        restored([{"directory": "run", "select": 1}], if_none="initialize")
    value, report = restored([{**sources[0], "on_damaged": "next"}, sources[1]])
    assert value == 2
    (reason,) = report.rejected
    assert "run/ckpt-1" in reason
    assert "index" in reason


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


def test_what_plain_tensorflow_wrote_is_not_taken_for_one_cut_short(restored) -> None:
    save("run/ckpt", 1.0)
    plain = tf.train.Checkpoint(value=tf.Variable(2.0))
    plain.save_counter.assign(1)
    assert plain.save("run/ckpt") == "run/ckpt-2"
    assert restored([{"directory": "run"}])[0] == 2


def test_each_source_has_its_own_policy(restored) -> None:
    save("zoo/ckpt", 5.0, extra=tf.Variable(1.0))
    lenient = {"assert": "existing_objects_matched"}
    assert restored([{"directory": "none"}, {"directory": "zoo", "policy": lenient}])[0] == 5


def test_a_plan_names_the_same_checkpoint_and_assigns_nothing() -> None:
    save("run/ckpt", 1.0)
    tear_the_index(save("run/ckpt", 2.0))
    value = tf.Variable(-1.0)
    plan = tfckpt.plan({"version": 1, "restore": {"directory": "run"}}, value=value)
    assert plan.source.endswith("ckpt-1")
    assert plan.ok
    assert value.numpy() == -1


def test_a_plan_says_what_was_passed_over(caplog) -> None:
    save("run/ckpt", 1.0)
    tear_the_index(save("run/ckpt", 2.0))
    sources = [{"path": "zoo/imagnet/ckpt-900"}, {"directory": "run"}]
    config = {"version": 1, "restore": {"first_of": sources}}
    assert tfckpt.plan(config, value=tf.Variable(-1.0)).source.endswith("ckpt-1")
    assert "zoo/imagnet/ckpt-900" in caplog.text
    assert "run/ckpt-2" in caplog.text
