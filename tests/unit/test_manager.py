"""``tfckpt.CheckpointManager``: TensorFlow's, and what TensorFlow's does wrong."""

from __future__ import annotations

import errno
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import tensorflow as tf

import tfckpt
from tfckpt.stored.io.files import LocalFiles

if TYPE_CHECKING:
    from collections.abc import Callable

HOUR = 3600.0


@pytest.fixture
def value() -> tf.Variable:
    return tf.Variable(0)


@pytest.fixture
def manager(value, tmp_path) -> Callable[..., Any]:
    """``manager(max_to_keep=2)``: a new one, of a new Checkpoint, as after a restart."""

    def build(max_to_keep: int | None = None, **more: Any) -> Any:
        checkpoint = tfckpt.Checkpoint(value=value)
        return tfckpt.CheckpointManager(checkpoint, tmp_path / "run", max_to_keep, **more)

    return build


@pytest.fixture
def clock(monkeypatch) -> list[float]:
    """``clock[0] += 3600``: an hour later."""
    now = [1_700_000_000.0]
    monkeypatch.setattr(time, "time", lambda: now[0])
    return now


def save(manager: Any, value: tf.Variable, number: int) -> str:
    value.assign(number)
    return manager.save()


def kept(manager: Any) -> list[str]:
    return [Path(path).name for path in manager.checkpoints]


def listing(directory: Path) -> dict[str, bytes]:
    """All files but the lock's."""
    return {path.name: path.read_bytes() for path in directory.glob("[!.]*")}


# Numbers, and what is kept


def test_saves_are_numbered_listed_and_released(manager, value, tmp_path) -> None:
    first = manager(max_to_keep=2)
    assert first.latest_checkpoint is None
    assert first.checkpoints == []
    for number in range(1, 5):
        assert save(first, value, number) == str(tmp_path / "run" / f"ckpt-{number}")
    assert kept(first) == ["ckpt-3", "ckpt-4"]
    assert first.latest_checkpoint == str(tmp_path / "run" / "ckpt-4")
    stems = {name.split(".")[0] for name in listing(tmp_path / "run")}
    assert stems == {"checkpoint", "ckpt-3", "ckpt-4"}


def test_a_manager_that_restored_nothing_overwrites_nothing(manager, value, tmp_path) -> None:
    for number in range(1, 4):
        save(manager(), value, number)
    assert kept(manager()) == ["ckpt-1", "ckpt-2", "ckpt-3"]
    stored = [tf.train.load_variable(path, "value/.ATTRIBUTES/VARIABLE_VALUE") for path in
              manager().checkpoints]  # fmt: skip
    assert stored == [1, 2, 3]


@pytest.mark.parametrize("left", ["ckpt-9.data-00000-of-00001", "ckpt-9.tfckpt.json"])
def test_the_number_of_debris_is_not_used_again(manager, value, tmp_path, left) -> None:
    save(manager(), value, 1)
    (tmp_path / "run" / left).write_bytes(b"debris")
    assert save(manager(), value, 2).endswith("ckpt-10")
    assert (tmp_path / "run" / left).read_bytes() == b"debris"


def test_a_number_given_is_used_and_what_was_saved_stays(manager, value) -> None:
    first = manager(max_to_keep=1)
    assert first.save(checkpoint_number=3).endswith("ckpt-3")
    path = first.save(checkpoint_number=tf.constant(10))
    assert path.endswith("ckpt-10")
    assert kept(first) == ["ckpt-10"]
    assert int(first.checkpoint.save_counter) == 2


def test_one_per_so_many_hours_is_kept_for_good(manager, value, clock) -> None:
    first = manager(max_to_keep=1, keep_checkpoint_every_n_hours=2)
    for number in range(1, 8):
        save(first, value, number)
        clock[0] += HOUR
    assert kept(first) == ["ckpt-3", "ckpt-5", "ckpt-7"]
    second = manager(max_to_keep=1)
    second.restore_or_initialize()
    for number in range(8, 10):
        save(second, value, number)
        clock[0] += HOUR
    assert kept(second) == ["ckpt-3", "ckpt-5", "ckpt-9"]


def test_what_is_kept_for_good_is_what_tensorflow_keeps(manager, value, clock, tmp_path) -> None:
    theirs = tf.train.CheckpointManager(
        tf.train.Checkpoint(value=value), str(tmp_path / "theirs"), 2, 1.5
    )
    ours = manager(max_to_keep=2, keep_checkpoint_every_n_hours=1.5)
    for minutes in (10, 50, 40, 100, 20, 30, 200, 5, 5, 70, 90, 1):
        theirs.save()
        ours.save()
        clock[0] += 60 * minutes
    on_disk = {path.stem for path in (tmp_path / "theirs").glob("*.index")}
    assert set(kept(ours)) == on_disk


def test_a_lost_state_file_loses_no_checkpoint_and_no_rule(manager, value, clock, tmp_path) -> None:
    first = manager(max_to_keep=3)
    for number in range(1, 4):
        save(first, value, number)
        clock[0] += 60
    (tmp_path / "run" / "checkpoint").unlink()
    again = manager(max_to_keep=3)
    assert again.restore_or_initialize().endswith("ckpt-3")
    assert kept(again) == ["ckpt-1", "ckpt-2", "ckpt-3"]
    save(again, value, 4)
    assert kept(again) == ["ckpt-2", "ckpt-3", "ckpt-4"]


@pytest.mark.parametrize(
    "state",
    [
        b"",
        b"\xff\x00",
        b'model_checkpoint_path: "ckpt-77"\n',
        b'model_checkpoint_path: "../v/ckpt"',
    ],
    ids=["empty", "bytes", "dead", "outside"],
)
def test_a_damaged_state_file_is_no_fresh_start(manager, value, tmp_path, state) -> None:
    save(manager(), value, 5)
    (tmp_path / "run" / "checkpoint").write_bytes(state)
    value.assign(0)
    again = manager(init_fn=lambda: pytest.fail("a fresh start"))
    assert again.restore_or_initialize().endswith("ckpt-1")
    assert value.numpy() == 5
    assert again.save().endswith("ckpt-2")


# Intervals and the first start


def test_checkpoint_interval_counts_from_the_last_save(manager, value) -> None:
    step = tf.Variable(0)
    first = manager(step_counter=step, checkpoint_interval=3)
    saved = []
    for number in range(8):
        step.assign(number)
        saved.append(first.save() is not None)
    assert saved == [True, False, False, True, False, False, True, False]
    assert first.save(check_interval=False) is not None
    assert first.save(check_interval=False) is None  # this step has been saved
    assert first.checkpoint_interval == 3


def test_last_checkpoint_step_is_where_the_interval_begins(manager) -> None:
    step = tf.Variable(2)
    first = manager(step_counter=step, checkpoint_interval=3, last_checkpoint_step=0)
    assert first.save() is None
    step.assign(3)
    assert first.save() is not None


def test_init_fn_is_called_where_there_is_no_checkpoint_only(manager, value) -> None:
    first = manager(init_fn=lambda: value.assign(42))
    assert first.restore_or_initialize() is None
    assert value.numpy() == 42
    first.save()
    value.assign(0)
    again = manager(init_fn=lambda: value.assign(-1))
    assert again.restore_or_initialize() == first.latest_checkpoint
    assert value.numpy() == 42


def test_a_damaged_newest_is_passed_over(manager, value, tmp_path) -> None:
    first = manager()
    save(first, value, 1)
    save(first, value, 2)
    (tmp_path / "run" / "ckpt-2.index").write_bytes(b"torn")
    assert manager().restore_or_initialize().endswith("ckpt-1")
    assert value.numpy() == 1


def test_a_newest_with_a_damaged_object_graph_is_passed_over(manager, value, tmp_path) -> None:
    first = manager()
    save(first, value, 1)
    save(first, value, 2)
    data = tmp_path / "run" / "ckpt-2.data-00000-of-00001"
    content = data.read_bytes()
    data.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))  # the graph is written last
    assert manager().restore_or_initialize().endswith("ckpt-1")
    assert value.numpy() == 1


def test_none_that_can_be_read_is_no_fresh_start(manager, value, tmp_path) -> None:
    save(manager(), value, 1)
    (tmp_path / "run" / "ckpt-1.index").write_bytes(b"torn")
    again = manager(init_fn=lambda: pytest.fail("a fresh start"))
    with pytest.raises(tfckpt.DamagedCheckpointError, match="ckpt-1"):
        again.restore_or_initialize()


def test_a_lost_index_is_damage_and_no_fresh_start(manager, value, tmp_path) -> None:
    save(manager(), value, 1)
    (tmp_path / "run" / "ckpt-1.index").unlink()
    again = manager(init_fn=lambda: pytest.fail("a fresh start"))
    with pytest.raises(tfckpt.DamagedCheckpointError, match="ckpt-1"):
        again.restore_or_initialize()
    assert again.latest_checkpoint is not None


def test_a_lost_index_costs_the_others_nothing(manager, value, tmp_path) -> None:
    first = manager(max_to_keep=2)
    save(first, value, 1)
    save(first, value, 2)
    (tmp_path / "run" / "ckpt-2.index").unlink()
    value.assign(0)
    again = manager(max_to_keep=2)
    assert again.restore_or_initialize().endswith("ckpt-1")
    assert value.numpy() == 1
    assert save(again, value, 3).endswith("ckpt-3")
    assert tf.train.latest_checkpoint(str(tmp_path / "run")) == again.latest_checkpoint
    assert tf.train.get_checkpoint_state(str(tmp_path / "run")).all_model_checkpoint_paths == [
        str(tmp_path / "run" / name) for name in ("ckpt-1", "ckpt-3")
    ]
    save(again, value, 4)
    left = {name for name in listing(tmp_path / "run") if name.startswith(("ckpt-1", "ckpt-2"))}
    assert left == {"ckpt-2.data-00000-of-00001", "ckpt-2.tfckpt.json"}  # it may be of use yet


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"max_to_keep": 0}, ValueError),
        ({"max_to_keep": -1}, ValueError),
        ({"checkpoint_interval": 3}, ValueError),
        ({"max_to_keep": 1.5}, TypeError),
        ({"max_to_keep": "3"}, TypeError),
        ({"max_to_keep": True}, TypeError),
        ({"keep_checkpoint_every_n_hours": "2"}, TypeError),
        ({"keep_checkpoint_every_n_hours": -1}, ValueError),
        ({"keep_checkpoint_every_n_hours": float("nan")}, ValueError),
        ({"checkpoint_name": ""}, ValueError),
        ({"checkpoint_name": "a/b"}, ValueError),
        ({"checkpoint_name": "a\0b"}, ValueError),
        ({"checkpoint_name": None}, TypeError),
    ],
)
def test_what_the_constructor_refuses(manager, arguments, error) -> None:
    with pytest.raises(error):
        manager(**arguments)


@pytest.mark.parametrize("number", [-3, 1.5, "7", True, 10**18])
def test_a_number_that_no_checkpoint_has_is_refused_before_anything_is_written(
    manager, tmp_path, number
) -> None:
    first = manager()
    with pytest.raises(tfckpt.SaveError, match="checkpoint_number"):
        first.save(checkpoint_number=number)
    assert not (tmp_path / "run").exists()
    assert int(first.checkpoint.save_counter) == 0
    assert first.save(checkpoint_number=0).endswith("ckpt-0")


def test_weights_that_the_checkpoint_does_not_have_are_named(flavour, tmp_path, caplog) -> None:
    def build(*names: str) -> Any:
        layers = [flavour.layers.Dense(4, name=name) for name in names]
        model = flavour.Sequential([flavour.Input((4,)), *layers])
        return tfckpt.CheckpointManager(tfckpt.Checkpoint(model=model), tmp_path, 3)

    build("a").save()
    assert build("a").restore_or_initialize().endswith("ckpt-1")
    assert "model/a" not in caplog.text
    assert build("a", "head").restore_or_initialize().endswith("ckpt-1")
    assert "model/head/kernel" in caplog.text
    assert "model/head/bias" in caplog.text
    assert "model/a" not in caplog.text


def test_a_plain_checkpoint_is_refused(tmp_path) -> None:
    with pytest.raises(TypeError, match=r"tfckpt\.Checkpoint"):
        tfckpt.CheckpointManager(tf.train.Checkpoint(), str(tmp_path), 1)


# Failures


def test_a_save_that_fails_changes_nothing_and_the_retry_saves(
    manager, value, tmp_path, monkeypatch
) -> None:
    step = tf.Variable(7)
    first = manager(max_to_keep=1, step_counter=step, checkpoint_interval=1)
    save(first, value, 1)
    before = listing(tmp_path / "run")
    step.assign(8)

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(LocalFiles, "write_atomic", full)  # the commit record
        with pytest.raises(tfckpt.SaveError):
            first.save()
    assert listing(tmp_path / "run") == before
    assert int(first.checkpoint.save_counter) == 1
    assert first.save().endswith("ckpt-2")
    assert kept(first) == ["ckpt-2"]


def test_a_file_in_the_place_of_the_directory_fails_the_save(manager, value, tmp_path) -> None:
    first = manager()
    (tmp_path / "run").write_text("in the way")
    with pytest.raises(tfckpt.TfckptError):
        first.save()
    assert int(first.checkpoint.save_counter) == 0
    (tmp_path / "run").unlink()
    assert first.save().endswith("ckpt-1")


@pytest.mark.parametrize("call", ["write_state", "remove"])
def test_a_committed_save_succeeds_although_the_tidying_fails(
    manager, value, monkeypatch, call
) -> None:
    first = manager(max_to_keep=1)
    save(first, value, 1)
    real = LocalFiles.write_atomic

    def broken(files: Any, path: str, *rest: Any) -> None:
        if call == "remove" or path.endswith("/checkpoint"):
            raise OSError(errno.EIO, "Input/output error")
        real(files, path, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(LocalFiles, "remove" if call == "remove" else "write_atomic", broken)
        assert save(first, value, 2).endswith("ckpt-2")
    value.assign(0)
    assert manager().restore_or_initialize().endswith("ckpt-2")
    assert value.numpy() == 2
    save(first, value, 3)
    assert kept(first) == ["ckpt-3"]


# Beside plain TensorFlow


def test_a_directory_name_is_no_pattern(value, tmp_path) -> None:
    checkpoint = tfckpt.Checkpoint(value=value)
    manager = tfckpt.CheckpointManager(checkpoint, str(tmp_path / "run[1]*"), 1)
    for _ in range(3):
        manager.save()
    assert kept(manager) == ["ckpt-3"]
