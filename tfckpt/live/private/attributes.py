"""Names of attributes and methods of TensorFlow and Keras, kept in lists.

They say which attributes change in training, hold what is found elsewhere, or decide what is saved.
Seen in TensorFlow 2.16 to 2.21, Keras 3.1 to 3.15 and tf_keras 2.16 to 2.21. A list that has become
incomplete makes a tree larger, or a save forget that something has changed: so no save keeps names
on a version that is newer than those (``versions.untested``), and ``live/objects/listed.py``
compares each tree with what Keras lists.
"""

from __future__ import annotations

# Of TensorFlow's proxies of dicts and tuples.
OF_WRAPPERS = (
    "__wrapped__",
    "_self_external_modification",
    "_self_last_wrapped_dict_snapshot",
    "_self_non_string_key",
    "_self_saveable_object_factories",
    "_self_tuple_is_constructable",
    "_self_unconditional_checkpoint_dependencies",
)
# Empty on nearly every variable.
SLICE = "_save_slice_info"
CHILDREN = "_self_unconditional_checkpoint_dependencies"
OF_KERAS_VARIABLES = (CHILDREN, "_self_saveable_object_factories")
OF_VARIABLES = (SLICE, *OF_KERAS_VARIABLES)
OF_NAMES = ("_name", "_path", "_value")  # of a Keras variable
# These hold metrics but are not trackables, like Keras 3's metrics and seed generators.
COMPILED = ("keras.src.trainers.compile_utils", "tf_keras.src.engine.compile_utils")
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

# User classes

# Looked up by name, whether or not a base class has them.
PROBED = frozenset(
    str.split(
        """
        _create_slots _deferred_initialize _distributed_container _generator _index_dict
        _loss_scale _metrics _seed_generators _self_tracked_trackables _state_var _variable
        _variables get_slot get_slot_names inner_optimizer metrics optimizer path
        quantization_mode state
        """
    )
)
REPEATABLE = frozenset(
    str.split(
        """
        built layers metrics name non_trainable_variables non_trainable_weights optimizer
        trainable trainable_variables trainable_weights variables weights
        """
    )
)
# What classes commonly override, and no name, child or key depends on.
HARMLESS = frozenset(
    str.split(
        """
        __abstractmethods__ __annotations__ __call__ __delattr__ __dict__ __eq__ __getstate__
        __hash__ __init__ __init_subclass__ __new__ __reduce__ __reduce_ex__ __repr__
        __setattr__ __setstate__ __str__ __subclasshook__ __weakref__ _copy_trackable_to_cpu
        _create_slots _export_to_saved_model_graph _prepare_local _resource_apply_dense
        _resource_apply_sparse _restore_from_tensors add_loss add_metric
        add_weight apply apply_gradients assign build build_from_config call compile
        compile_from_config compute_gradients compute_loss compute_mask compute_metrics
        compute_output_shape compute_output_signature compute_output_spec count_params
        deserialize evaluate export fit from_config get_build_config get_compile_config
        get_config get_initial_state get_layer get_metrics_result get_weights init
        load_own_variables load_weights losses make_predict_function make_test_function
        make_train_function metrics_names minimize predict predict_step quantize reset_metrics
        reset_state reset_states result save save_own_variables save_weights serialize
        set_weights stateless_call summary test_step train_step update_state update_step
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
