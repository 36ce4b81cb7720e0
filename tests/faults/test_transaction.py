"""A restore that fails leaves every variable as it was, wherever it fails.

Each fault is tried at every place it can strike: the Nth read, the Nth assignment, until a restore
meets none and goes through, which shows that the loop has been at every place.
"""

from __future__ import annotations

import contextlib
import errno
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.ops import resource_variable_ops

import tfckpt
from tfckpt.live import apply
from tfckpt.stored.io.files import LocalHandle

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

VARIABLE = resource_variable_ops.ResourceVariable


class Trained:
    """A model and its optimizer, or a plain module, and a step; every value tells them apart."""

    def __init__(self, keras: Any, seed: int, units: int = 2, extra: int = 0) -> None:
        self.step = tf.Variable(0, dtype=tf.int64)
        if keras is None:
            self.model = _module(units, extra)
            self.objects = {"model": self.model, "step": self.step}
        else:
            layers = [keras.layers.Dense(units, name=f"extra_{n}") for n in range(extra)]
            self.model = keras.Sequential(
                [
                    keras.Input((4,)),
                    keras.layers.Dense(3, name="a"),
                    keras.layers.Dropout(0.5, seed=seed, name="drop"),
                    keras.layers.Dense(units, name="b"),
                    *layers,
                ]
            )
            self.model.compile(keras.optimizers.Adam(0.01), "mse")
            self.model.optimizer.build(self.model.trainable_variables)
            self.objects = {
                "model": self.model,
                "optimizer": self.model.optimizer,
                "step": self.step,
            }
        self.checkpoint = tfckpt.Checkpoint(**self.objects)
        random = np.random.default_rng(seed)
        for variable in self.variables():
            dtype = np.dtype(variable.numpy().dtype)
            low, high = (1, 1000) if dtype.kind in "iu" else (0.1, 1)
            variable.assign(random.uniform(low, high, size=variable.shape).astype(dtype))

    def variables(self) -> list[Any]:
        """As Keras and TensorFlow list them."""
        variables = [*self.model.variables, self.step, self.checkpoint.save_counter]
        return variables + list(getattr(getattr(self.model, "optimizer", None), "variables", []))

    def state(self) -> list[tuple[Any, ...]]:
        """Every variable, bit by bit."""
        arrays = [variable.numpy() for variable in self.variables()]
        return [(array.dtype, array.shape, array.tobytes()) for array in arrays]


def _module(units: int, extra: int) -> tf.Module:
    module = tf.Module()
    for number in range(3 + extra):
        shape = (4, units if number == 2 else 3)
        setattr(module, f"v{number}", tf.Variable(np.zeros(shape, np.float32)))
    return module


@pytest.fixture(params=["keras3", "tf_keras", "module"])
def trained(request: pytest.FixtureRequest) -> Callable[..., Trained]:
    if request.param == "module":
        return lambda seed, **more: Trained(None, seed, **more)
    name = "keras" if request.param == "keras3" else "tf_keras"
    keras = pytest.importorskip(name)
    return lambda seed, **more: Trained(keras, seed, **more)


@pytest.fixture
def source(trained, tmp_path) -> Trained:
    """What was saved; ``source.path`` is where."""
    source = trained(1)
    source.path = source.checkpoint.save(str(tmp_path / "ckpt"))
    return source


def by_checkpoint(target: Trained, path: str) -> None:
    target.checkpoint.restore(path).assert_consumed()


def by_run(target: Trained, path: str, **policy: Any) -> None:
    config = {"version": 1, "restore": {"path": path, "policy": policy}}
    run = tfckpt.from_config(config, **target.objects)
    run.checkpoint = target.checkpoint  # whose save_counter is looked at
    run.restore()


@pytest.fixture(params=[by_checkpoint, by_run])
def restore(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """``restore(target, path)``: by ``tfckpt.Checkpoint`` or by a config."""
    return request.param


@contextlib.contextmanager
def unchanged(target: Trained) -> Iterator[None]:
    before = target.state()
    yield
    assert target.state() == before


def strike(attempt: Callable[[], None], inject: Callable[[int], Any], limit: int = 400) -> int:
    """Tries with the fault at the first place, the second …; returns how many places there are."""
    for place in range(limit):
        with inject(place) as struck:
            try:
                attempt()
            except (tfckpt.TfckptError, KeyboardInterrupt, ValueError):
                assert struck
            else:
                assert not struck, f"place {place}: the fault was met and nobody said so"
                return place
    raise AssertionError("the fault always strikes")


def data_file(path: str) -> Path:
    (found,) = Path(path).parent.glob(Path(path).name + ".data-*")
    return found


def test_without_a_fault_it_is_restored(source, trained, restore) -> None:
    target = trained(2)
    restore(target, source.path)
    assert target.state() == source.state()


def test_one_bit_of_the_last_value(source, trained, restore) -> None:
    data = data_file(source.path)
    content = bytearray(data.read_bytes())
    places = [content.find(value) for _, _, value in source.state() if len(value) > 8]
    content[max(places)] ^= 1
    data.write_bytes(content)
    target = trained(2)
    with unchanged(target), pytest.raises(tfckpt.DamagedCheckpointError):
        restore(target, source.path)


@pytest.mark.parametrize("keep", [0, 0.5, -1])
def test_a_truncated_data_file(source, trained, restore, keep) -> None:
    data = data_file(source.path)
    content = data.read_bytes()
    data.write_bytes(content[: int(len(content) * keep) if keep >= 0 else -1])
    target = trained(2)
    with unchanged(target), pytest.raises(tfckpt.DamagedCheckpointError):
        restore(target, source.path)


@pytest.fixture
def bad_read(monkeypatch) -> Callable[[int], Any]:
    """``with bad_read(n)``: the nth read of a file fails, once."""

    @contextlib.contextmanager
    def inject(place: int) -> Iterator[list[int]]:
        struck: list[int] = []
        count = iter(range(10_000))

        def failing(real: Any) -> Any:
            def read(*args: Any) -> Any:
                if next(count) == place:
                    struck.append(place)
                    raise OSError(errno.EIO, "Input/output error")
                return real(*args)

            return read

        with monkeypatch.context() as patch:
            patch.setattr(LocalHandle, "pread", failing(LocalHandle.pread))
            patch.setattr(LocalHandle, "readinto", failing(LocalHandle.readinto))
            yield struck

    return inject


def test_every_read_that_fails(source, trained, restore, bad_read) -> None:
    target = trained(2)
    before = target.state()

    def attempt() -> None:
        assert target.state() == before
        restore(target, source.path)

    assert strike(attempt, bad_read) > 10
    assert target.state() == source.state()


@pytest.mark.parametrize("at_a_time", [0, 100])
def test_without_verification_a_failed_read_says_what_it_left(
    source, trained, monkeypatch, bad_read, at_a_time
) -> None:
    monkeypatch.setattr(apply, "AT_A_TIME", at_a_time)
    target = trained(2)
    before, outcomes = target.state(), []
    for place in range(200):
        with bad_read(place) as struck:
            try:
                by_run(target, source.path, verify="none")
            except tfckpt.TfckptError as error:
                changed = target.state() != before
                outcomes.append((changed, "not all could be put back" in str(error)))
                if changed:
                    before = target.state()
        if not struck:
            break
    assert target.state() == source.state()
    assert (False, False) in outcomes
    assert (True, True) in outcomes
    assert (True, False) not in outcomes


WAYS = ["before", "after", "for ever", "interrupt"]


@pytest.fixture(params=WAYS + [f"{way}, by the operation" for way in WAYS])
def bad_assign(request: pytest.FixtureRequest, monkeypatch) -> Callable[[int], Any]:
    """``with bad_assign(n)``: the nth variable does not take its value.

    By its method, or by the operation that is called without it.
    """
    how, operation, _ = request.param.partition(", ")
    error: Any = KeyboardInterrupt() if how == "interrupt" else ValueError("no")

    @contextlib.contextmanager
    def inject(place: int) -> Iterator[list[int]]:
        struck: list[int] = []
        count = iter(range(10_000))

        def failing(real: Any) -> Any:
            def assign(*args: Any, **kwargs: Any) -> Any:
                which = args[0] if args else kwargs["resource"]
                if next(count) == place or (how == "for ever" and id(which) in struck):
                    struck.append(id(which))
                    if how in ("after", "interrupt"):
                        real(*args, **kwargs)
                    raise error
                return real(*args, **kwargs)

            return assign

        with monkeypatch.context() as patch:
            if operation:
                patch.setattr(tf.raw_ops, "AssignVariableOp", failing(tf.raw_ops.AssignVariableOp))
            else:
                patch.setattr(VARIABLE, "assign", failing(VARIABLE.assign))
            name = "shape_safe_assign_variable_handle"  # TensorFlow's own restoration
            patch.setattr(
                resource_variable_ops, name, failing(getattr(resource_variable_ops, name))
            )
            yield struck

    return inject


def test_every_variable_that_does_not_take_its_value(source, trained, restore, bad_assign) -> None:
    target = trained(2)
    before = target.state()

    def attempt() -> None:
        assert target.state() == before
        restore(target, source.path)

    assert strike(attempt, bad_assign) >= 4
    assert target.state() == source.state()


@pytest.fixture(params=["keras3", "tf_keras"])
def keras_trained(request: pytest.FixtureRequest) -> Callable[..., Trained]:
    keras = pytest.importorskip("keras" if request.param == "keras3" else "tf_keras")
    return lambda seed, **more: Trained(keras, seed, **more)


@pytest.mark.parametrize("where", [(VARIABLE, "assign"), (tf.raw_ops, "AssignVariableOp")])
def test_verify_values_finds_a_variable_that_holds_something_else(
    keras_trained, tmp_path, monkeypatch, where
) -> None:
    source, target = keras_trained(1), keras_trained(2)
    path = source.checkpoint.save(str(tmp_path / "ckpt"))
    real, wrong = getattr(*where), target.model.trainable_variables[-1]
    wrong = getattr(wrong, "_value", wrong)
    turn = iter([True])

    def assign(*args: Any, **kwargs: Any) -> Any:
        which, value, *more = args or kwargs.values()
        off = (which is wrong or which is wrong.handle) and next(turn, False)
        changed = (which, value + 1 if off else value, *more)
        return real(*changed) if args else real(**dict(zip(kwargs, changed, strict=True)))

    monkeypatch.setattr(*where, assign)
    config = {"version": 1, "restore": {"path": path, "policy": {"verify": "values"}}}
    with (
        unchanged(target),
        pytest.raises(tfckpt.RestoreError, match="does not hold the value that was assigned"),
    ):
        tfckpt.restore(config, **target.objects)


def test_an_iterator_that_does_not_take_its_state_costs_no_variable(tmp_path) -> None:
    value = tf.Variable(1.0)
    iterator = iter(tf.data.Dataset.range(9))
    path = tfckpt.Checkpoint(value=value, iterator=iterator).save(str(tmp_path / "ckpt"))
    value.assign(2.0)
    other = iter(tf.data.Dataset.range(9).shuffle(3, seed=1).batch(2))
    with pytest.raises(tfckpt.RestoreError, match="Nothing was restored; the iterator"):
        tfckpt.restore(path, value=value, iterator=other, policy={"match": "name"})
    assert value.numpy() == 2.0


def test_an_iterator_is_put_back_where_a_variable_does_not_take_its_value(
    tmp_path, monkeypatch
) -> None:
    value, iterator = tf.Variable(1.0), iter(tf.data.Dataset.range(9))
    next(iterator)
    path = tfckpt.Checkpoint(value=value, iterator=iterator).save(str(tmp_path / "ckpt"))
    value.assign(2.0)
    for _ in range(3):
        next(iterator)

    def assign(**_: Any) -> None:
        raise ValueError("no")

    with monkeypatch.context() as patch:
        patch.setattr(tf.raw_ops, "AssignVariableOp", assign)
        with pytest.raises(tfckpt.RestoreError, match="rejected the value: no"):
            tfckpt.restore(path, value=value, iterator=iterator)
    assert int(next(iterator)) == 4
    assert value.numpy() == 2.0


def test_what_cannot_be_put_back_is_said(keras_trained, tmp_path, monkeypatch) -> None:
    source, target = keras_trained(1), keras_trained(2)
    path = source.checkpoint.save(str(tmp_path / "ckpt"))
    before, real, left = target.state(), tf.raw_ops.AssignVariableOp, iter(range(3))

    def fails(*_: Any, **arguments: Any) -> None:  # after three values the device takes nothing
        if next(left, None) is None:
            monkeypatch.setattr(VARIABLE, "assign", fails)
            raise ValueError("no")
        real(**arguments)

    monkeypatch.setattr(tf.raw_ops, "AssignVariableOp", fails)
    with pytest.raises(tfckpt.RestoreError, match=r"not all could be put back: .* no") as raised:
        target.checkpoint.restore(path)
    assert "restore again, from this or another checkpoint" in str(raised.value)
    assert target.state() != before


@pytest.fixture
def interrupted(monkeypatch) -> Iterator[Callable[..., Any]]:
    """``with interrupted(n)``: Ctrl-C is pressed as the nth variable gets its value."""

    @contextlib.contextmanager
    def inject(place: int, times: int = 1) -> Iterator[list[int]]:
        struck: list[int] = []
        count = iter(range(10_000))

        def assign(*arguments: Any, **options: Any) -> Any:
            if next(count) == place:
                for number in range(times):
                    struck.append(number)
                    signal.raise_signal(signal.SIGINT)
            return real(*arguments, **options)

        real = tf.raw_ops.AssignVariableOp
        with monkeypatch.context() as patch:
            patch.setattr(tf.raw_ops, "AssignVariableOp", assign)
            yield struck
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler

    # A job that a shell has put into the background ignores it.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield inject
    signal.signal(signal.SIGINT, before)


def test_an_interrupt_puts_everything_back(keras_trained, tmp_path, interrupted) -> None:
    source = keras_trained(1)
    path = source.checkpoint.save(str(tmp_path / "ckpt"))
    target = keras_trained(2)
    before = target.state()

    def attempt() -> None:
        assert target.state() == before
        target.checkpoint.restore(path)

    assert strike(attempt, interrupted) >= 4
    assert target.state() == source.state()


def test_a_second_interrupt_does_not_end_the_way_back(
    keras_trained, tmp_path, monkeypatch, interrupted
) -> None:
    source, target = keras_trained(1), keras_trained(2)
    path = source.checkpoint.save(str(tmp_path / "ckpt"))
    real, count = VARIABLE.assign, iter(range(10_000))

    def assign(*arguments: Any) -> Any:
        if next(count) % 2 == 0:  # each value is put back at the second attempt
            signal.raise_signal(signal.SIGINT)
        return real(*arguments)

    with interrupted(8), unchanged(target), monkeypatch.context() as patch:
        apply_before = apply.Undo.roll_back

        def roll_back(undo: Any) -> None:
            patch.setattr(VARIABLE, "assign", assign)
            apply_before(undo)

        patch.setattr(apply.Undo, "roll_back", roll_back)
        with pytest.raises(KeyboardInterrupt):
            target.checkpoint.restore(path)
    assert next(count) > 3


# Assertions of a status


def test_an_assertion_that_fails_puts_everything_back(source, trained) -> None:
    target = trained(2, extra=1)
    before = target.state()
    status = target.checkpoint.restore(source.path)
    assert target.state() != before
    with pytest.raises(AssertionError):
        status.assert_existing_objects_matched()
    assert target.state() == before


def test_where_one_has_changed_since_none_is_put_back(source, trained) -> None:
    target = trained(2, extra=1)
    status = target.checkpoint.restore(source.path)
    restored = target.state()
    trained_since = target.model.variables[0]
    trained_since.assign(trained_since + 1)
    with pytest.raises(AssertionError, match="changed since the restore, so none was put back"):
        status.assert_consumed()
    after = target.state()
    assert after[1:] == restored[1:]
    expected = source.model.variables[0].numpy() + 1
    np.testing.assert_array_equal(target.model.variables[0].numpy(), expected)


def test_read_of_what_save_wrote_puts_everything_back(keras_trained, tmp_path) -> None:
    path = keras_trained(1).checkpoint.save(str(tmp_path / "ckpt"))
    target = keras_trained(2)
    checkpoint = tfckpt.Checkpoint(**target.objects)  # with no save_counter
    with unchanged(target), pytest.raises(AssertionError):
        checkpoint.read(path).assert_consumed()
