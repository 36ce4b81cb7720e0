"""Each save writes what its objects are and hold at that moment."""

from __future__ import annotations

import copy
import gc
import weakref
from typing import TYPE_CHECKING, Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfckpt

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def stored(prefix: str, key: str) -> Any:
    return tf.train.load_checkpoint(prefix).get_tensor(f"{key}/.ATTRIBUTES/VARIABLE_VALUE")


@pytest.mark.parametrize("saves", [1, 2])
def test_what_is_updated_after_a_save_is_not_in_it(saves: int, tmp_path: Path) -> None:
    dense = tf.Variable(tf.zeros([3, 2]))
    sparse = tf.Variable(tf.zeros([3, 2]))
    rows = tf.IndexedSlices(tf.ones([1, 2]), [1])
    sparse.scatter_add(rows)  # from now on it is updated in place
    checkpoint = tfckpt.Checkpoint(dense=dense, sparse=sparse)
    asynchronous = tf.train.CheckpointOptions(experimental_enable_async_checkpoint=True)
    for number in range(saves):
        dense.assign(tf.fill([3, 2], float(number)))
        before = sparse.numpy()
        path = checkpoint.save(str(tmp_path / "ckpt"), options=asynchronous)
        dense.assign_add(tf.ones([3, 2]))
        sparse.scatter_add(rows)
    checkpoint.sync()
    assert (stored(path, "dense") == saves - 1).all()
    assert (stored(path, "sparse") == before).all()


def test_a_metric_that_makes_its_variables_at_its_first_batch_is_saved(tmp_path: Path) -> None:
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(2)])
    model.score = keras.metrics.F1Score()
    checkpoint = tfckpt.Checkpoint(model=model)
    checkpoint.save(str(tmp_path / "ckpt"))
    model.score.update_state(np.eye(2), np.eye(2))
    path = checkpoint.save(str(tmp_path / "ckpt"))
    model.score.reset_state()
    checkpoint.restore(path).assert_consumed()
    np.testing.assert_array_equal(model.score.true_positives, [1, 1])


def test_the_state_that_a_seed_generator_has_now_is_saved(tmp_path: Path) -> None:
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dropout(0.5)])
    checkpoint = tfckpt.Checkpoint(model=model)
    checkpoint.save(str(tmp_path / "ckpt"))
    generator = model.layers[0].seed_generator
    generator.state = keras.random.SeedGenerator(7).state
    path = checkpoint.save(str(tmp_path / "ckpt"))
    generator.next()
    checkpoint.restore(path).assert_consumed()
    np.testing.assert_array_equal(generator.state, [7, 0])


class Counter(tf.train.experimental.PythonState):  # type: ignore[misc]
    def __init__(self) -> None:
        self.count = 0

    def serialize(self) -> str:
        return str(self.count)

    def deserialize(self, value: bytes) -> None:
        self.count = int(value)


def test_state_of_python_s_is_asked_for_at_each_save(tmp_path: Path) -> None:
    counter = Counter()
    checkpoint = tfckpt.Checkpoint(counter=counter, v=tf.Variable(1))
    for count in (1, 2, 3):
        counter.count = count
        path = checkpoint.save(str(tmp_path / "ckpt"))
        reader = tf.train.load_checkpoint(path)
        assert reader.get_tensor("counter/.ATTRIBUTES/py_state") == str(count).encode()


def test_a_table_s_entries_are_those_of_each_save(tmp_path: Path) -> None:
    table = tf.lookup.experimental.MutableHashTable(tf.string, tf.int64, -1)
    checkpoint = tfckpt.Checkpoint(table=table, v=tf.Variable(1))
    for number in range(3):
        table.insert([f"word {number}"], [number])
        path = checkpoint.save(str(tmp_path / "ckpt"))
        fresh = tf.lookup.experimental.MutableHashTable(tf.string, tf.int64, -1)
        tf.train.Checkpoint(table=fresh).read(path).expect_partial()
        assert fresh.size() == number + 1


def _module_whose_children_vary() -> tuple[Any, Callable[[], None]]:
    class Varying(tf.Module):  # type: ignore[misc]
        def _trackable_children(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
            return {**super()._trackable_children(*args, **kwargs), **elsewhere}

    elsewhere: dict[str, Any] = {}
    return Varying(), lambda: elsewhere.update(more=tf.Variable(2.0))


def _module_whose_class_gets_a_method() -> tuple[Any, Callable[[], None]]:
    class Plain(tf.Module):  # type: ignore[misc]
        pass

    module, more = Plain(), tf.Variable(2.0)
    return module, lambda: setattr(Plain, "_trackable_children", lambda *_, **__: {"more": more})


def _module_with_a_method_of_its_own() -> tuple[Any, Callable[[], None]]:
    module, elsewhere = tf.Module(), {"more": tf.Variable(1.0)}
    vars(module)["_trackable_children"] = lambda *_, **__: elsewhere
    return module, lambda: elsewhere.update(more=tf.Variable(2.0))


@pytest.mark.parametrize(
    "made",
    [
        _module_whose_children_vary,
        _module_whose_class_gets_a_method,
        _module_with_a_method_of_its_own,
    ],
)
def test_code_of_the_user_s_own_is_asked_at_each_save(made: Any, tmp_path: Path) -> None:
    module, change = made()
    checkpoint = tfckpt.Checkpoint(module=module, v=tf.Variable(1))
    checkpoint.save(str(tmp_path / "ckpt"))
    change()
    assert stored(checkpoint.save(str(tmp_path / "ckpt")), "module/more") == 2.0


def test_a_variable_that_says_itself_what_is_saved_of_it_is_asked(tmp_path: Path) -> None:
    v = tf.Variable(1.0)
    checkpoint = tfckpt.Checkpoint(v=v)
    for value in (2.0, 3.0):
        vars(v)["_serialize_to_tensors"] = lambda value=value: {
            "VARIABLE_VALUE": tf.constant(value)
        }
        assert stored(checkpoint.save(str(tmp_path / "ckpt")), "v") == value


def test_a_copy_knows_only_its_own_objects(tmp_path: Path) -> None:
    checkpoint = tfckpt.Checkpoint(module=tf.Module(), v=tf.Variable(1))
    checkpoint.save(str(tmp_path / "one"))
    other = copy.deepcopy(checkpoint)
    other.v.assign(2)
    assert stored(other.save(str(tmp_path / "other")), "v") == 2
    assert stored(checkpoint.save(str(tmp_path / "one")), "v") == 1


def test_a_root_that_is_held_weakly_is_not_held_by_what_is_known_of_it(tmp_path: Path) -> None:
    module = tf.Module()
    module.v = tf.Variable(1)
    checkpoint = tfckpt.Checkpoint(weakref.ref(module))
    checkpoint.save(str(tmp_path / "ckpt"))
    gone = weakref.ref(module)
    del module
    gc.collect()
    assert gone() is None
