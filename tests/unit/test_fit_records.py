"""Values and places of a training as a record has them; what is damaged is passed over."""

from __future__ import annotations

import collections
import datetime
import json
import random
import tracemalloc
from pathlib import Path
from typing import Any

import keras
import ml_dtypes
import msgspec
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from tensorflow.python.eager import context
from zoo.fits import through_json

import tfckpt
import tfckpt.callbacks
from tfckpt.errors import DamagedCheckpointError
from tfckpt.live import generators
from tfckpt.stored.bundles.bundle import Bundle
from tfckpt.training.json_values import MAX_BITS, NoJSONError, decode, encode
from tfckpt.training.position import Position, position_in

DTYPES = st.sampled_from(["?", "i1", "i4", "i8", "u8", "f2", "f4", "f8"])
scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.binary()
    | st.complex_numbers()
    | st.sets(st.integers() | st.text())
    | st.frozensets(st.floats(allow_nan=False))
    | st.datetimes().map(lambda one: one.replace(fold=0))
    | st.timedeltas()
    | st.decimals(allow_nan=False)
    | st.uuids()
    | st.builds(range, st.integers(), st.integers())
    | st.sampled_from([Path("a/b"), datetime.date(2020, 2, 29), datetime.time(1, 2, 3, 4)])
    | hnp.arrays(DTYPES, ()).map(lambda array: array[()])
)
data = st.recursive(
    scalars | hnp.arrays(DTYPES, hnp.array_shapes(min_side=0)),
    lambda inner: (
        st.lists(inner)
        | st.lists(inner).map(tuple)
        | st.lists(inner).map(collections.deque)
        | st.dictionaries(st.text() | st.sampled_from(["$int", "$"]) | st.integers(), inner)
    ),
    max_leaves=20,
)


def alike(one: Any, other: Any) -> bool:
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return list(map(repr, one)) == list(map(repr, other)) and all(
            map(alike, one.values(), other.values())
        )
    if isinstance(one, (set, frozenset)):
        return sorted(map(repr, one)) == sorted(map(repr, other))
    if isinstance(one, (list, tuple, collections.deque)):
        return len(one) == len(other) and all(map(alike, one, other))
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and repr(one.tolist()) == repr(other.tolist())
    return repr(one) == repr(other)  # tells -0.0 from 0.0, and NaN is NaN


@given(data)
def test_a_value_comes_back_as_it_was(value: Any) -> None:
    assert alike(decode(through_json(encode(value))), value)


def test_what_is_nested_without_end_is_refused() -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(NoJSONError, match="levels"):
        encode(endless)


def test_a_number_is_as_long_as_a_person_would_have_it() -> None:
    longest = -(1 << MAX_BITS) + 1
    assert decode(through_json(encode(longest))) == longest
    with pytest.raises(NoJSONError, match="bits"):
        encode(2 * longest)


def test_small_types_come_back() -> None:
    for name in ("bfloat16", "int4"):
        array = np.array([0, 1, 2], getattr(ml_dtypes, name))
        back = decode(through_json(encode(array)))
        assert back.dtype == array.dtype
        np.testing.assert_array_equal(back.astype(float), [0, 1, 2])


def nested(depth: int) -> Any:
    value: Any = []
    for _ in range(depth):
        value = [value]
    return value


# What a record may say that nobody has encoded, and what it would come to.
FORGED = {
    "text of 900 MB": {"$array": ["S900000000", [2], [1, 2]]},
    "a scalar of 900 MB": {"$V8": 900_000_000},
    "a field list": {"$array": ["f8,(100000000,)f8", [1], [0]]},
    "a list of fields": {"$array": [[["a", "f8"]], [1], [0]]},
    "a repeated type": {"$array": ["(100000000,)f8", [1], [0]]},
    "objects": {"$array": ["O", [1], [0]]},
    "a shape that is not that of the elements": {"$array": ["int8", [900_000_000], [0]]},
    "a shape that is guessed": {"$array": ["int8", [-1], [0, 1]]},
    "a side that no array has": {"$array": ["int8", [0, 1 << 60], []]},
    "many dimensions": {"$array": ["int8", [1] * 40, [0]]},
    "many elements": {"$array": ["int8", [10_001], [0] * 10_001]},
    "lists for elements": {"$array": ["int8", [1], [[0] * 100]]},
    "a long number": {"$int": "f" * 1_000_000},
    "text for infinity": {"$float": "1" * 400},
    "a deep list": nested(900),
    "deep tuples": {"$tuple": [{"$tuple": [nested(20)]}]},
    "text for bytes": {"$bytes": "no base 64 at all"},
    "lists in a set": {"$set": [[1]]},
    "a deque without a length": {"$deque": [1]},
    "one number of two": {"$complex": [1]},
    "no date": {"$datetime": "soon"},
    "a range of one text": {"$range": ["a"]},
    "deep mappings": {"$dict": [[1, {"$dict": [[1, nested(20)]]}]]},
}


@pytest.mark.parametrize("value", FORGED.values(), ids=FORGED)
def test_what_nobody_encoded_is_refused_before_memory_is_taken(value: Any) -> None:
    tracemalloc.start()
    try:
        with pytest.raises((OverflowError, TypeError, ValueError)):
            decode(value)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 4 << 20


PLACE = Position(
    fit=0,
    initial_epoch=0,
    epochs=4,
    epoch=1,
    calls=2,
    ended=False,
    passes=3,
    pulled=2,
    goes_on=False,
    validated=0,
    steps=None,
    steps_per_execution=1,
    inferred_steps=None,
    data="saved",
    source={},
    content="0c0ffee0",
    element="",
    global_seed=7,
    stopped=False,
    counter=None,
    logs={"loss": 0.5},
    generators={},
    first={},
    callbacks={},
    arrays=[],
)


@pytest.mark.parametrize("field", Position.__struct_fields__)
def test_what_is_none_is_damage(field: str) -> None:
    def damaged(training: Any, said: str) -> None:
        with pytest.raises(DamagedCheckpointError, match=said):
            position_in({"fit": training}, "ckpt-1")

    whole = msgspec.to_builtins(PLACE)
    for wrong in (-1 if field != "global_seed" else "1", 1.5, {1} if field == "logs" else {1: 2}):
        damaged({**whole, field: wrong}, field)
    damaged({name: whole[name] for name in whole if name != field}, f"missing.*`{field}`")
    damaged({**whole, "another": 1}, "another")


def test_generators_of_the_process_go_on_where_they_were() -> None:
    def draw() -> list[float]:
        return [
            random.random(),
            random.gauss(0, 1),
            float(np.random.normal()),
            float(tf.random.normal(())),
            float(keras.random.normal(())),
            float(tf.random.get_global_generator().normal(())),
        ]

    keras.utils.set_random_seed(5)
    draw()
    saved = json.loads(json.dumps(generators.take()))
    expected = draw()
    assert draw() != expected
    context.context().clear_kernel_cache()  # as in a new process
    generators.put(saved)
    assert draw() == expected


@pytest.mark.parametrize("bad", [{"python": [3, "AAAA", None]}, {"numpy": ["AAAA", 1, 0, 0.0]}])
def test_a_state_that_is_none_is_no_state(bad: dict) -> None:
    with pytest.raises((ValueError, TypeError)):
        generators.put(bad)


def flip(prefix: str, key: str) -> None:
    with Bundle.open(prefix) as bundle:
        entry = bundle.entries[key]
        path = bundle.path(entry.shard)
    with Path(path).open("r+b") as file:
        file.seek(entry.offset)
        byte = file.read(1)[0]
        file.seek(entry.offset)
        file.write(bytes([byte ^ 1]))


def resumed_model() -> keras.Model:
    built = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1, name="a")])
    built.compile("sgd", "mse", run_eagerly=True)
    return built


class Killed(keras.callbacks.Callback):
    def on_train_batch_end(self, batch: int, logs: object = None) -> None:
        if batch == 2:
            raise ZeroDivisionError


def resumed_data() -> tf.data.Dataset:
    x = np.ones((8, 2), "float32")
    return tf.data.Dataset.from_tensor_slices((x, x[:, :1])).shuffle(8, seed=1).batch(2)


@pytest.mark.parametrize("what", ["string", "variant"], ids=["graph", "iterator"])
def test_what_tensorflow_reads_is_passed_over_by_fit(
    what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = resumed_model()
    resume = tfckpt.callbacks.resume(first, tmp_path, save_freq=1)
    with pytest.raises(ZeroDivisionError):
        first.fit(resumed_data(), epochs=1, callbacks=[resume, Killed()])
    (newest, before) = (f"ckpt-{one.number}" for one in tfckpt.list_checkpoints(tmp_path)[:2])
    with Bundle.open(str(tmp_path / newest)) as bundle:
        key = next(key for key, entry in bundle.entries.items() if entry.dtype == what)
    flip(str(tmp_path / newest), key)
    assert [one.ok for one in tfckpt.verify(tmp_path)][:2] == [False, True]
    again = resumed_model()
    again.fit(resumed_data(), epochs=2, callbacks=[tfckpt.callbacks.resume(again, tmp_path)])
    said = capsys.readouterr().out
    assert f"restored {tmp_path / before}" in said
    assert int(again.optimizer.iterations) == 8
