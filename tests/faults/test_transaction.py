"""A restore that fails leaves every variable as it was, wherever it fails.

Each fault is tried at every place it can strike: the Nth read, the Nth assignment, until a restore
meets none and goes through, which shows that the loop has been at every place.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.ops import resource_variable_ops

import tfckpt
from tfckpt.live import apply
from tfckpt.stored.io.files import LocalHandle

VARIABLE = resource_variable_ops.ResourceVariable
WAYS = ("before", "after", "for ever", "interrupt")


class Trained:
    """A model and its optimizer, or a plain module, and a step; every value tells them apart."""

    def __init__(self, kind: str, seed: int, extra: int = 0) -> None:
        self.model: Any = tf.Module()
        self.step = tf.Variable(0, dtype=tf.int64)
        self.objects = {"model": self.model, "step": self.step}
        if kind == "module":
            for number in range(3 + extra):
                setattr(self.model, f"v{number}", tf.Variable(tf.zeros((4, 3))))
        else:
            keras = pytest.importorskip(kind)
            layers = [keras.layers.Dense(2, name=f"layer_{n}") for n in range(2 + extra)]
            layers.insert(1, keras.layers.Dropout(0.5, seed=seed, name="drop"))
            self.model = keras.Sequential([keras.Input((4,)), *layers])
            self.model.compile(keras.optimizers.Adam(0.01), "mse")
            self.model.optimizer.build(self.model.trainable_variables)
            self.objects |= {"model": self.model, "optimizer": self.model.optimizer}
        self.checkpoint = tfckpt.Checkpoint(**self.objects)
        random = np.random.default_rng(seed)
        for variable in self.variables():
            drawn = random.uniform(1, 1000, size=variable.shape)
            variable.assign(drawn.astype(variable.numpy().dtype))

    def variables(self) -> list[Any]:
        """As Keras and TensorFlow list them."""
        variables = [*self.model.variables, self.step, self.checkpoint.save_counter]
        return variables + list(getattr(self.objects.get("optimizer"), "variables", []))

    def state(self) -> list[tuple[Any, ...]]:
        """Every variable, bit by bit."""
        arrays = [variable.numpy() for variable in self.variables()]
        return [(array.dtype, array.shape, array.tobytes()) for array in arrays]


def by_checkpoint(target: Trained, path: str) -> None:
    target.checkpoint.restore(path).assert_consumed()


def by_run(target: Trained, path: str, **policy: Any) -> None:
    config = {"version": 1, "restore": {"path": path, "policy": policy}}
    run = tfckpt.from_config(config, **target.objects)
    run.checkpoint = target.checkpoint  # whose save_counter is looked at
    run.restore()


class Pair:
    """What was saved, and what it is restored into, by ``restore``."""

    def __init__(self, kind: str, restore: Callable[..., None], directory: Path) -> None:
        self.source, self.target = Trained(kind, 1), Trained(kind, 2)
        self.wider = Trained(kind, 2, extra=1)
        self.path = self.source.checkpoint.save(str(directory / "ckpt"))
        (self.data,) = directory.glob("ckpt-*.data-*")
        self._restore = restore

    def restore(self) -> None:
        self._restore(self.target, self.path)


KINDS = [("keras", by_checkpoint), ("tf_keras", by_run), ("module", by_run)]


def each_of(rows: Iterable[Any]) -> Any:
    """Rows, each with one kind of pair in turn; with all of them where it may be long."""
    cases = [
        pytest.param(
            kind,
            row,
            marks=[pytest.mark.long] if (n - k) % len(KINDS) else [],
            id=f"{kind[0]}-{row}",
        )
        for n, row in enumerate(rows)
        for k, kind in enumerate(KINDS)
    ]
    return pytest.mark.parametrize(("pair", "how"), cases, indirect=["pair"])


@pytest.fixture(params=KINDS[:1], ids=["keras"])
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> Pair:
    return Pair(*request.param, tmp_path)


@contextlib.contextmanager
def unchanged(target: Trained) -> Iterator[None]:
    before = target.state()
    yield
    assert target.state() == before


# The data of the checkpoint


def test_damaged_data_change_nothing(pair) -> None:
    whole = pair.data.read_bytes()
    last = max(whole.find(value) for _, _, value in pair.source.state() if len(value) > 8)
    for content in (whole[:last] + bytes([whole[last] ^ 1]) + whole[last + 1 :], whole[:-1], b""):
        pair.data.write_bytes(content)
        with unchanged(pair.target), pytest.raises(tfckpt.DamagedCheckpointError):
            pair.restore()


# Every place


METHOD, OPERATION = (VARIABLE, "assign"), (tf.raw_ops, "AssignVariableOp")
THEIRS = (resource_variable_ops, "shape_safe_assign_variable_handle")  # TensorFlow's own way
READS = ((LocalHandle, "pread"), (LocalHandle, "readinto"))
FAULTS: dict[str, tuple[str, tuple[tuple[Any, str], ...]]] = {
    "a read": ("read", READS),
    "Ctrl-C": ("signal", (OPERATION,)),
    **{f"{how}, by method": (how, (METHOD, THEIRS)) for how in WAYS},
    **{f"{how}, by operation": (how, (OPERATION, THEIRS)) for how in WAYS},
}
ERRORS = {"read": OSError(errno.EIO, "Input/output error"), "interrupt": KeyboardInterrupt()}


def inject(
    patch: pytest.MonkeyPatch, place: int, how: str, calls: Sequence[tuple[Any, str]]
) -> list[int]:
    """The nth call fails; or it is done and fails, or fails for ever; or Ctrl-C comes.

    Returns which have been struck.
    """
    struck, count = list[int](), itertools.count()

    def replaced(real: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            which = id(args[0] if args else kwargs["resource"])
            if next(count) != place and not (how == "for ever" and which in struck):
                return real(*args, **kwargs)
            struck.append(which)
            if how == "signal":
                signal.raise_signal(signal.SIGINT)
            if how in ("signal", "after", "interrupt"):
                real(*args, **kwargs)
            if how != "signal":
                raise ERRORS.get(how, ValueError("no"))
            return None

        return call

    for owner, name in calls:
        patch.setattr(owner, name, replaced(getattr(owner, name)))
    return struck


@pytest.fixture
def default_interrupt() -> Iterator[None]:
    """A job that a shell has put into the background ignores Ctrl-C."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("default_interrupt")
@each_of(FAULTS)
def test_a_fault_at_any_place_changes_nothing(pair, how, monkeypatch) -> None:
    before = pair.target.state()
    for place in range(400):
        with monkeypatch.context() as patch:
            struck = inject(patch, place, *FAULTS[how])
            try:
                pair.restore()
            except (tfckpt.TfckptError, KeyboardInterrupt, ValueError):
                assert struck
                assert pair.target.state() == before
            else:
                assert not struck, f"place {place}: nobody said so"
                break
    assert place >= 4
    assert pair.target.state() == pair.source.state()


@each_of([0, 100])
def test_without_verification_a_failed_read_says_what_it_left(pair, monkeypatch, how) -> None:
    monkeypatch.setattr(apply, "AT_A_TIME", how)
    target, outcomes = pair.target, []
    for place in range(200):
        before = target.state()
        with monkeypatch.context() as patch:
            struck = inject(patch, place, "read", READS)
            try:
                by_run(target, pair.path, verify="none")
            except tfckpt.TfckptError as error:
                said = "not all could be put back" in str(error)
                outcomes.append((target.state() != before, said))
        if not struck:
            break
    assert target.state() == pair.source.state()
    assert {(False, False), (True, True)} <= {*outcomes}
    assert (True, False) not in outcomes


@pytest.mark.parametrize("where", [METHOD, OPERATION], ids=["method", "operation"])
def test_verify_values_finds_a_variable_that_holds_something_else(pair, monkeypatch, where) -> None:
    target, turn = pair.target, iter([True])
    real, wrong = getattr(*where), target.model.trainable_variables[-1]
    wrong = getattr(wrong, "_value", wrong)

    def assign(*args: Any, **kwargs: Any) -> Any:
        which, value, *more = args or kwargs.values()
        off = (which is wrong or which is wrong.handle) and next(turn, False)
        changed = (which, value + 1 if off else value, *more)
        return real(*changed) if args else real(**dict(zip(kwargs, changed, strict=True)))

    monkeypatch.setattr(*where, assign)
    with (
        unchanged(target),
        pytest.raises(tfckpt.RestoreError, match="does not hold the value that was assigned"),
    ):
        tfckpt.restore(pair.path, **target.objects, policy={"verify": "values"})


def test_an_iterator_is_put_back_too(tmp_path, monkeypatch) -> None:
    value, iterator = tf.Variable(1.0), iter(tf.data.Dataset.range(9))
    next(iterator)
    path = tfckpt.Checkpoint(value=value, iterator=iterator).save(str(tmp_path / "ckpt"))
    value.assign(2.0)
    other = iter(tf.data.Dataset.range(9).shuffle(3, seed=1).batch(2))
    with pytest.raises(tfckpt.RestoreError, match="Nothing was restored; the iterator"):
        tfckpt.restore(path, value=value, iterator=other, policy={"match": "name"})
    assert value.numpy() == 2.0
    for _ in range(3):
        next(iterator)
    with monkeypatch.context() as patch:
        inject(patch, 0, "before", [OPERATION])
        with pytest.raises(tfckpt.RestoreError, match="rejected the value: no"):
            tfckpt.restore(path, value=value, iterator=iterator)
    assert (int(next(iterator)), value.numpy()) == (4, 2.0)


def test_what_cannot_be_put_back_is_said(pair, monkeypatch) -> None:
    target, left = pair.target, iter(range(3))
    before, real = target.state(), tf.raw_ops.AssignVariableOp

    def fails(*_: Any, **arguments: Any) -> None:  # after three values the device takes nothing
        if next(left, None) is None:
            monkeypatch.setattr(*METHOD, fails)
            raise ValueError("no")
        real(**arguments)

    monkeypatch.setattr(*OPERATION, fails)
    with pytest.raises(tfckpt.RestoreError, match=r"not all could be put back: .* no") as raised:
        pair.restore()
    assert "restore again, from this or another checkpoint" in str(raised.value)
    assert target.state() != before


@pytest.mark.usefixtures("default_interrupt")
def test_a_second_interrupt_does_not_end_the_way_back(pair, monkeypatch) -> None:
    real, count, roll_back = VARIABLE.assign, itertools.count(), apply.Undo.roll_back

    def assign(*arguments: Any) -> Any:
        if next(count) % 2 == 0:  # each value is put back at the second attempt
            signal.raise_signal(signal.SIGINT)
        return real(*arguments)

    def interrupted(undo: Any) -> None:
        monkeypatch.setattr(*METHOD, assign)
        roll_back(undo)

    with unchanged(pair.target), monkeypatch.context() as patch:
        inject(patch, 8, "signal", [OPERATION])
        patch.setattr(apply.Undo, "roll_back", interrupted)
        with pytest.raises(KeyboardInterrupt):
            pair.restore()
    assert next(count) > 3


# Assertions of a status


def test_an_assertion_that_fails_puts_everything_back(pair) -> None:
    target = pair.wider
    before = target.state()
    status = target.checkpoint.restore(pair.path)
    assert target.state() != before
    with pytest.raises(AssertionError):
        status.assert_existing_objects_matched()
    assert target.state() == before
    without_counter = tfckpt.Checkpoint(**pair.target.objects)
    with unchanged(pair.target), pytest.raises(AssertionError):
        without_counter.read(pair.path).assert_consumed()


def test_where_one_has_changed_since_none_is_put_back(pair) -> None:
    target = pair.wider
    status = target.checkpoint.restore(pair.path)
    restored = target.state()
    trained_since = target.model.variables[0]
    trained_since.assign(trained_since + 1)
    with pytest.raises(AssertionError, match="changed since the restore, so none was put back"):
        status.assert_consumed()
    assert target.state()[1:] == restored[1:]
    expected = pair.source.model.variables[0].numpy() + 1
    np.testing.assert_array_equal(target.model.variables[0].numpy(), expected)
