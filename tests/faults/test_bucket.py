"""An object store that fails or loses its writer, at every call made to it."""

from __future__ import annotations

import contextlib
import random

import numpy as np
import pytest
import tensorflow as tf
from zoo.bucket import Bucket, Killed, Strike
from zoo.command_line import document

import tfckpt

KEEP = 2


class Life:
    """Processes that save into one bucket, one after the other, and what they were told."""

    def __init__(self, bucket: Bucket) -> None:
        self.bucket = bucket
        self.acknowledged: dict[int, str] = {}
        self.tried = 0
        self.failed: set[int] = set()
        self.begin()

    def begin(self) -> None:
        self.value = tf.Variable(tf.zeros([50]))
        self.step = tf.Variable(0, dtype=tf.int64)
        self.checkpoint = tfckpt.Checkpoint(value=self.value, step=self.step)

    def open(self) -> None:
        self.manager = tfckpt.CheckpointManager(self.checkpoint, self.bucket.directory, KEEP)

    def save(self) -> None:
        self.tried += 1
        self.value.assign(tf.fill([50], float(self.tried)))
        self.step.assign(self.tried)
        try:
            path = self.manager.save()
        except tfckpt.SaveError as error:
            if "partial files could not be removed either" not in str(error):
                self.failed.add(self.tried)
            raise
        assert path not in self.acknowledged.values()
        self.acknowledged[self.tried] = path

    def restored(self) -> int:
        """The step that a new process restores, 0 for none."""
        self.begin()
        self.open()
        self.manager.restore_or_initialize()
        step = int(self.step.numpy())
        np.testing.assert_array_equal(self.value.numpy(), np.full(50, step, np.float32))
        return step

    def judge(self) -> None:
        """A new process finds what it must, and saves; nothing is left over."""
        bucket = self.bucket
        bucket.restart()
        newest = max(self.acknowledged, default=0)
        allowed = {newest, *range(newest + 1, self.tried + 1)} - self.failed
        found = self.restored()
        assert found in allowed | ({0} if not newest else set()), bucket.calls
        for step, path in sorted(self.acknowledged.items())[-KEEP:]:
            if step > found - KEEP:
                again = tf.Variable(0, dtype=tf.int64)
                tfckpt.Checkpoint(step=again).read(path).expect_partial()
                assert int(again.numpy()) == step
        self.save()
        assert self.manager.latest_checkpoint == self.acknowledged[self.tried]
        bucket.restart()
        assert self.restored() == self.tried
        self.save()
        assert bucket.replaced == []
        assert bucket.names() == self.expected()

    def expected(self) -> list[str]:
        bases = [path.rpartition("/")[2] for path in self.manager.checkpoints]
        assert self.acknowledged[self.tried].endswith(bases[-1])
        names = [f"{b}.{end}" for b in bases for end in ("data-00000-of-00001", "index")]
        return sorted(["checkpoint", *names, *(f"{base}.tfckpt.json" for base in bases)])


def lived(patch: pytest.MonkeyPatch, n: int, strike: Strike) -> int:
    """One struck call in the life of a writer; how many calls there were."""
    bucket = Bucket(patch)
    life = Life(bucket)
    life.open()
    life.save()
    bucket.arm(n, strike)
    expected = () if strike is Strike.TWICE else (Killed, OSError, tfckpt.TfckptError)
    with contextlib.suppress(*expected):
        life.open()
        life.save()
        life.save()
    calls = len(bucket.calls)
    life.judge()
    return calls


@pytest.fixture(scope="module")
def calls() -> int:
    with pytest.MonkeyPatch.context() as patch:
        return lived(patch, 10**9, Strike.FAIL)


def test_no_failing_call_costs_a_checkpoint(calls: int) -> None:
    rng = random.Random(20250131)
    for strike in Strike:
        for n in rng.sample(range(1, calls + 1), 9):
            with pytest.MonkeyPatch.context() as patch:
                lived(patch, n, strike)


@pytest.mark.long
@pytest.mark.parametrize("strike", Strike)
def test_every_failing_call(strike: Strike, calls: int) -> None:
    for n in range(1, calls + 2):
        with pytest.MonkeyPatch.context() as patch:
            lived(patch, n, strike)


def two(patch: pytest.MonkeyPatch, n: int, keep: int | None = None) -> int:
    """A second process saves while the first is at its n-th call; how many the first one made."""
    bucket = Bucket(patch)
    first, told = Writer(bucket, 100, keep), {}
    told |= first.saves(1)
    bucket.between(n, lambda: told.update(Writer(bucket, 200, keep).saves(2)))
    told |= first.saves(1)
    calls = len(bucket.calls)
    for path, value in told.items():
        assert whole(path) == value, (path, n)
    last = Writer(bucket, 300, keep)
    told |= last.saves(1)
    assert last.manager.latest_checkpoint == next(reversed(told))
    assert whole(last.manager.latest_checkpoint) == 300
    assert len([name for name in bucket.names() if name.endswith(".json")]) == len(told)
    return calls


class Writer:
    """One of several processes that save into one bucket."""

    def __init__(self, bucket: Bucket, value: int, keep: int | None) -> None:
        self.value = value
        self.variable = tf.Variable(tf.zeros([50]))
        checkpoint = tfckpt.Checkpoint(value=self.variable)
        self.manager = tfckpt.CheckpointManager(checkpoint, bucket.directory, keep)

    def saves(self, count: int) -> dict[str, int]:
        """Path → value, of the saves that returned."""
        told = {}
        for _ in range(count):
            self.variable.assign(tf.fill([50], float(self.value)))
            with contextlib.suppress(tfckpt.SaveError):
                told[self.manager.save()] = self.value
            self.value += 1
        return told


def whole(path: str) -> int:
    variable = tf.Variable(tf.zeros([50]))
    tfckpt.Checkpoint(value=variable).read(path).expect_partial()
    (value,) = set(variable.numpy().tolist())
    return int(value)


def test_two_writers_cost_each_other_no_checkpoint_that_was_acknowledged() -> None:
    with pytest.MonkeyPatch.context() as patch:
        calls = two(patch, 10**9)
    for n in random.Random(20250131).sample(range(1, calls + 1), 12):
        with pytest.MonkeyPatch.context() as patch:
            two(patch, n)


def once(patch: pytest.MonkeyPatch, n: int, strike: Strike) -> int:
    """One name is written, and one call is struck; how many there were. It is whole, or free."""
    bucket = Bucket(patch)
    path = f"{bucket.directory}/fixed"
    value = tf.Variable(0.0)
    checkpoint = tfckpt.Checkpoint(value=value)

    def write(number: float) -> None:
        value.assign(number)
        checkpoint.write(path)

    bucket.arm(n, strike)
    acknowledged = False
    with contextlib.suppress(Killed, tfckpt.SaveError):
        write(1.0)
        acknowledged = True
    calls = len(bucket.calls)
    bucket.restart()
    expected, refused = 2.0, ""
    try:
        write(2.0)
    except tfckpt.SaveError as error:
        expected, refused = 1.0, str(error)
    if acknowledged or refused:
        assert "already exists and is not overwritten" in refused
        assert "`save` finds one: no checkpoint is replaced in an object store" in refused
    found = tf.Variable(0.0)
    tfckpt.Checkpoint(value=found).read(path).assert_consumed()
    assert float(found) == expected, (n, strike)
    assert bucket.replaced == []
    data, index, record = bucket.names()
    assert (data[:11], index, record) == ("fixed.data-", "fixed.index", "fixed.tfckpt.json")
    return calls


def test_a_name_is_written_once_and_whole() -> None:
    with pytest.MonkeyPatch.context() as patch:
        calls = once(patch, 10**9, Strike.FAIL)
    rng = random.Random(20250131)
    for strike in Strike:
        for n in rng.sample(range(1, calls + 1), 6):
            with pytest.MonkeyPatch.context() as patch:
                once(patch, n, strike)


def test_a_number_is_not_written_over_either() -> None:
    with pytest.MonkeyPatch.context() as patch:
        bucket = Bucket(patch)
        checkpoint = tfckpt.Checkpoint(value=tf.Variable(0.0))
        manager = tfckpt.CheckpointManager(checkpoint, bucket.directory, None)
        manager.save(checkpoint_number=5)
        before = bucket.names()
        with pytest.raises(tfckpt.SaveError, match="already exists and is not overwritten"):
            manager.save(checkpoint_number=5)
        assert bucket.names() == before
        assert manager.save().endswith("ckpt-6")


@pytest.mark.long
@pytest.mark.parametrize("strike", Strike)
def test_every_call_of_writing_a_name(strike: Strike) -> None:
    with pytest.MonkeyPatch.context() as patch:
        calls = once(patch, 10**9, Strike.FAIL)
    for n in range(1, calls + 2):
        with pytest.MonkeyPatch.context() as patch:
            once(patch, n, strike)


def test_the_command_line_takes_a_directory_of_a_store() -> None:
    with pytest.MonkeyPatch.context() as patch:
        bucket = Bucket(patch)
        Writer(bucket, 1, None).saves(2)
        listed = document("list", bucket.directory)
        assert [one["number"] for one in listed["checkpoints"]] == [2, 1]
        assert {one["state"] for one in listed["checkpoints"]} == {"committed"}
        assert all(one["nbytes"] > 200 for one in listed["checkpoints"])
        newest = document("inspect", bucket.directory)
        assert newest["prefix"] == f"{bucket.directory}/ckpt-2"
        assert document("verify", bucket.directory)["ok"]
        data = f"{bucket.directory}/ckpt-1.data-00000-of-00001"
        bucket.put(data, b"?" + bucket.content(data)[1:])
        assert not document("verify", f"{bucket.directory}/ckpt-1", status=1)["ok"]
        document("prune", bucket.directory, "--keep", "latest=1", "--yes")
        assert {name.partition(".")[0] for name in bucket.names()} == {"checkpoint", "ckpt-2"}
