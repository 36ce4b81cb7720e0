"""Which user classes override what the names and children of objects depend on.

The code of TensorFlow and Keras depends only on attributes: if these have not changed, neither have
names and children. Other classes may override members and compute them from anything. Overridden
properties, such as the ``metrics`` of a model with its own training step, are evaluated again; if a
class overrides anything else that matters, its objects always count as changed.
"""

from __future__ import annotations

import sys

_KNOWN = sys.stdlib_module_names | {"keras", "tensorflow", "tf_keras", "tfckpt", "wrapt"}
# Looked up by name, whether or not a base class has them.
_PROBED = frozenset(
    str.split(
        """
        _create_slots _deferred_initialize _distributed_container _generator _index_dict
        _loss_scale _metrics _seed_generators _self_tracked_trackables _state_var _variable
        _variables get_slot get_slot_names inner_optimizer metrics optimizer path
        quantization_mode state
        """
    )
)
_REPEATABLE = frozenset(
    str.split(
        """
        built layers metrics name non_trainable_variables non_trainable_weights optimizer
        trainable trainable_variables trainable_weights variables weights
        """
    )
)
# What classes commonly override, and no name, child or key depends on.
_HARMLESS = frozenset(
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


class UnsureError(Exception):
    """It cannot be detected whether an object has changed."""


def own_classes(cls: type) -> list[type]:
    """The bases of a class that are the user's or another library's."""
    return [base for base in cls.__mro__ if not _is_known(base)]


def properties_asked(cls: type) -> tuple[str, ...]:
    """The properties that user code overrides.

    Raises:
        UnsureError: user code overrides a member that cannot simply be evaluated again.
    """
    known = _PROBED.union(*(vars(base) for base in cls.__mro__ if _is_known(base)))
    found: dict[str, None] = {}
    for base in own_classes(cls):
        for name in (known & vars(base).keys()) - _HARMLESS:
            member = vars(base)[name]
            if not hasattr(type(member), "__get__"):
                continue
            if name not in _REPEATABLE or not isinstance(member, property):
                raise UnsureError(f"{base.__qualname__}.{name}")
            found[name] = None
    return tuple(found)


def check_iteration(cls: type) -> None:
    """Check that a container class does not override iteration.

    Raises:
        UnsureError: it does.
    """
    for base in own_classes(cls):
        for name in ("__iter__", "items"):
            if name in vars(base) and issubclass(cls, (dict, list, tuple, set, frozenset)):
                raise UnsureError(f"{base.__qualname__}.{name}")


def methods_asked(cls: type) -> frozenset[str]:
    """The methods of a class that matter if an instance attribute overrides them."""
    methods = {name for base in cls.__mro__ for name, m in vars(base).items() if callable(m)}
    return frozenset(_PROBED | {name for name in methods if name[:1] == "_"}) - _HARMLESS


def _is_known(cls: type) -> bool:
    return str(cls.__module__).partition(".")[0] in _KNOWN
