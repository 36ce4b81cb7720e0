"""TensorFlow's and Keras's own names that tfckpt relies on: a release without one shows here."""

from __future__ import annotations

from typing import Any

import keras
import pytest
import tensorflow as tf
import tf_keras


def built(flavour: Any, optimizer: Any) -> Any:
    model = flavour.Sequential([flavour.Input((2,)), flavour.layers.Dense(1)])
    model.compile(optimizer, "mse")
    if hasattr(optimizer, "_create_all_weights"):
        optimizer._create_all_weights(model.trainable_variables)
    else:
        optimizer.build(model.trainable_variables)
    return model


ROOT = tf.Module()  # a checkpoint holds its root by a weak reference


MADE = {
    "Checkpoint": lambda: tf.train.Checkpoint(ROOT, v=tf.Variable(1.0)),
    "graph view": lambda: tf.train.Checkpoint(ROOT)._saver._graph_view,
    "Trackable": tf.Module,
    "Keras 3 layer": lambda: keras.layers.Dropout(0.5),
    "Keras 3 model": lambda: built(keras, keras.optimizers.Adam()),
    "Keras 3 variable": lambda: built(keras, keras.optimizers.Adam()).variables[0],
    "Keras 3 optimizer": lambda: built(keras, keras.optimizers.Adam()).optimizer,
    "tf_keras layer": lambda: tf_keras.layers.Dense(1),
    "tf_keras model": lambda: built(tf_keras, tf_keras.optimizers.Adam()),
    "tf_keras optimizer": lambda: built(tf_keras, tf_keras.optimizers.Adam()).optimizer,
    "tf_keras legacy optimizer": lambda: (
        built(tf_keras, tf_keras.optimizers.legacy.Adam()).optimizer
    ),
    "tf_keras loss scale": lambda: tf_keras.mixed_precision.LossScaleOptimizer(
        tf_keras.optimizers.Adam()
    ),
}
NAMES = {
    "Checkpoint": "_saver _root _save_counter _attached_dependencies _maybe_create_save_counter "
    "_write",
    "graph view": "breadth_first_traversal attached_dependencies root",
    "Trackable": "_serialize_to_tensors _gather_saveables_for_checkpoint _trackable_children",
    "Keras 3 layer": "_flatten_layers _trainable_variables _non_trainable_variables "
    "_seed_generators built",
    "Keras 3 model": "_initial_epoch metrics optimizer layers",
    "Keras 3 variable": "_value _deferred_initialize path",
    "Keras 3 optimizer": "_variables _trainable_variables _iterations _learning_rate _momentums "
    "built",
    "tf_keras layer": "_flatten_layers _trainable_weights _non_trainable_weights built",
    "tf_keras model": "_training_state metrics optimizer layers",
    "tf_keras optimizer": "_variables _index_dict _var_key _iterations _learning_rate _momentums "
    "_built",
    "tf_keras legacy optimizer": "_slots _hyper _iterations _create_all_weights _create_slots "
    "get_slot",
    "tf_keras loss scale": "_loss_scale _optimizer",
}


@pytest.mark.parametrize("kind", NAMES)
def test_the_names_are_there(kind: str) -> None:
    made = MADE[kind]()
    assert [name for name in NAMES[kind].split() if not hasattr(made, name)] == []
