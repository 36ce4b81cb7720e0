"""TensorFlow's and Keras's own names that tfckpt relies on: a release without one shows here."""

from __future__ import annotations

import keras
import pytest
import tensorflow as tf
import tf_keras
from tensorflow.python.eager import context
from tensorflow.python.ops import stateful_random_ops
from zoo.models import stack
from zoo.optimizers import compiled

import tfckpt
from tfckpt.live import generators
from tfckpt.live.private import graph as private_graph
from tfckpt.live.private import keras as private_keras


def built(k, optimizer=None):
    model = stack(k, k.layers.Dense(1), shape=(2,))
    return compiled(model, optimizer or k.optimizers.Adam())


def context_with_seed():
    tf.random.set_seed(1)  # which makes the generator of seeds
    return context.context()


ROOT = tf.Module()  # a checkpoint holds its root by a weak reference
LEGACY = tf_keras.optimizers.legacy
NAMES = {
    "Checkpoint": (
        lambda: tf.train.Checkpoint(ROOT, v=tf.Variable(1.0)),
        "_saver _root _save_counter _attached_dependencies _maybe_create_save_counter _write "
        "_track_trackable _delete_tracking",
    ),
    "graph view": (
        lambda: tf.train.Checkpoint(ROOT)._saver._graph_view,
        "attached_dependencies root",
    ),
    "Trackable": (
        tf.Module,
        "_serialize_to_tensors _restore_from_tensors _gather_saveables_for_checkpoint "
        "_trackable_children",
    ),
    "what is tracked": (
        lambda: tf.train.Checkpoint(v=tf.Variable(1.0)),
        f"_checkpoint_dependencies {private_graph.TRACKED}",
    ),
    "variable": (lambda: tf.Variable(1.0), "_handle _dtype _save_slice_info _shared_name"),
    "Keras 3 layer": (
        lambda: keras.layers.Dropout(0.5),
        "_flatten_layers _trainable_variables _non_trainable_variables _seed_generators built "
        "_maybe_initialize_trackable",
    ),
    "Keras 3 model": (
        lambda: built(keras),
        "_initial_epoch _should_eval train_function stop_training steps_per_execution "
        "_flatten_layers metrics optimizer layers",
    ),
    "Keras 3 variable": (lambda: built(keras).variables[0], "_value _deferred_initialize path"),
    "Keras 3 optimizer": (
        lambda: built(keras).optimizer,
        "_variables _trainable_variables iterations _learning_rate _momentums built",
    ),
    "tf_keras layer": (
        lambda: tf_keras.layers.Dense(1),
        "_flatten_layers _trainable_weights _non_trainable_weights built "
        "_maybe_initialize_trackable",
    ),
    "tf_keras model": (
        lambda: built(tf_keras),
        "_training_state _should_eval train_function _train_counter _steps_per_execution "
        "_flatten_layers metrics optimizer layers",
    ),
    "Keras 3 callbacks": (lambda: keras.callbacks.CallbackList([], epochs=1), "callbacks params"),
    "tf_keras callbacks": (lambda: tf_keras.callbacks.CallbackList([], epochs=1), "callbacks"),
    "tf_keras random layer": (lambda: tf_keras.layers.Dropout(0.5), "_random_generator"),
    "iterator": (
        lambda: iter(tf.data.Dataset.range(3)),
        "_iterator_resource _dataset element_spec get_next",
    ),
    "shuffle": (
        lambda: tf.data.Dataset.range(3).shuffle(3),
        "_seed _seed2 _reshuffle_each_iteration _inputs",
    ),
    "eager context": (context_with_seed, "_rng"),
    "generators": (lambda: stateful_random_ops, "global_generator get_global_generator"),
    "seeds of Keras 3": (
        lambda: keras.src.random.seed_generator,
        "global_seed_generator global_state",
    ),
    "tf_keras optimizer": (
        lambda: built(tf_keras).optimizer,
        "_variables _index_dict _var_key _iterations _learning_rate _momentums _built",
    ),
    "tf_keras legacy optimizer": (
        lambda: built(tf_keras, LEGACY.Adam()).optimizer,
        "_slots _hyper _iterations _create_all_weights _create_slots get_slot",
    ),
    "tf_keras loss scale": (
        lambda: tf_keras.mixed_precision.LossScaleOptimizer(tf_keras.optimizers.Adam()),
        "_loss_scale _optimizer",
    ),
}


@pytest.mark.parametrize("kind", NAMES)
def test_the_names_are_there(kind):
    make, names = NAMES[kind]
    made = make()
    assert [name for name in names.split() if not hasattr(made, name)] == []


@pytest.mark.parametrize("module", [keras, tf_keras])
def test_fit_gives_the_train_function_an_iterator_after_on_train_begin(module):
    given = []

    class Wrap(module.callbacks.Callback):
        def on_train_begin(self, logs=None):
            step = self.model.train_function
            vars(self.model)["train_function"] = lambda it: given.append(it) or step(it)

    model = built(module, module.optimizers.SGD())
    data = tf.data.Dataset.from_tensors((tf.ones((2, 2)), tf.ones((2, 1))))
    model.fit(data, callbacks=[Wrap()], verbose=0)
    assert [isinstance(one, tf.data.Iterator) for one in given][:1] == [True]


def test_the_global_seed_generator_is_found_and_the_look_for_it_leaves_no_variable():
    """In the scope of a strategy, all workers would have to make it together."""
    keras.random.uniform(())
    state = keras.src.random.seed_generator.global_seed_generator().state
    assert generators.take()["keras"] == state.numpy().tolist()

    keras.utils.clear_session()
    private_keras._check_found.cache_clear()
    made = []

    def note(create, **kwargs):
        made.append(kwargs)
        return create(**kwargs)

    with tf.variable_creator_scope(note):
        assert "keras" not in generators.take()
    assert made == []


def test_classes_and_errors_of_tf_data():
    assert type(tf.data.Dataset.range(3).repeat()).__name__ == "_RepeatDataset"
    spec = tf.TensorSpec((), tf.int32)
    iterator = iter(tf.data.Dataset.from_generator(lambda: iter([1]), output_signature=spec))
    with pytest.raises(tf.errors.FailedPreconditionError, match="PyFunc is stateful"):
        tf.raw_ops.SerializeIterator(
            resource_handle=iterator._iterator_resource, external_state_policy=2
        )


def test_a_private_part_that_is_gone_is_named_with_what_was_tested(monkeypatch, tmp_path):
    model = built(keras)
    monkeypatch.delattr(keras.layers.Layer, "_flatten_layers")
    for call in (
        lambda: tfckpt.inventory(model),
        lambda: tfckpt.Checkpoint(model=model).save(tmp_path / "ckpt"),
    ):
        with pytest.raises(tfckpt.NotInstalledError, match="no attribute '_flatten_layers'") as one:
            call()
        assert f"the installed version {keras.__version__}" in str(one.value)
        assert "was tested with keras" in str(one.value)
    assert not [*tmp_path.glob("*.index")]


def test_an_error_of_a_user_s_class_is_its_own(tmp_path):
    class State(tfckpt.Checkpoint):
        def save(self, *arguments, **options):
            assert self._absent
            return str(super().save(*arguments, **options))

    with pytest.raises(AttributeError, match="_absent"):
        State(v=tf.Variable(1.0)).save(str(tmp_path / "ckpt"))
