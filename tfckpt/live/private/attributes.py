"""Names of attributes and methods of TensorFlow and Keras, kept in lists.

They say which attributes change in training, hold what is found elsewhere, or decide what is saved.
Seen in TensorFlow 2.16 to 2.21, Keras 3.1 to 3.15 and tf_keras 2.16 to 2.21. A list that has become
incomplete makes a tree larger; ``live/objects/listed.py`` compares each tree with what Keras lists.
"""

from __future__ import annotations

# Attributes of Keras and TensorFlow on every object, on which no name and no key depends.
BOOKKEEPING = frozenset(
    str.split(
        """
        _auto_config _build_input_shape _build_shapes_dict _call_context_args _call_signature
        _call_spec _compile_config _compiled_trainable_state _distribute_strategy
        _distribution_strategy _dtype_policy _inbound_nodes _inbound_nodes_value _input_spec
        _last_wrapped_list_snapshot _loss_ids _losses _nodes _nodes_by_depth
        _obj_reference_counts_dict _operations_by_depth _outbound_nodes _outbound_nodes_value
        _saved_model_arg_spec _saved_model_inputs_spec _self_extra_variables
        _self_name_based_restores _self_unconditional_deferred_dependencies
        _self_unconditional_dependency_names _tensor_usage_count _thread_local _tracked _tracker
        call_signature_parameters
        """
    )
)

# Models and optimizers

# What `compile` and `fit` set on a model; the optimizer and the metrics are read by name. A user
# may keep layers on such an attribute: `self.history = [Dense(8), Dense(8)]`.
OF_TRAINERS = frozenset(
    {
        "compiled_loss",
        "compiled_metrics",
        "history",
        "loss",
        "make_predict_function",
        "make_test_function",
        "make_train_function",
        "optimizer",
        "predict_function",
        "test_function",
        "train_function",
        "train_tf_function",
        "_checkpoint",
        "_compile_config",
        "_compile_loss",
        "_compile_metrics",
        "_distribute_strategy",
        "_distribution_strategy",
        "_loss_tracker",
        "_predict_counter",
        "_steps_per_execution",
        "_test_counter",
        "_train_counter",
        "_training_state",
    }
)
# What an optimizer lists again.
OF_OPTIMIZERS = frozenset({"_variables", "_trainable_variables", "_weights"})
# tf_keras creates it, and a train_step may not use it.
LOSS_MEAN = "_total_loss_mean"
