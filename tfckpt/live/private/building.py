"""How either Keras builds a layer: what a save can know of it, and how it is done again.

Seen in Keras 3.1 to 3.15 and tf_keras 2.16 to 2.21. Without an attribute here a save records
nothing of a layer, and a restore asks for one call of the model.
"""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING, Any

import msgspec
import tensorflow as tf

from tfckpt.core.builds import LayerBuild
from tfckpt.live.private.tensorflow import optional

if TYPE_CHECKING:
    from collections.abc import Iterator

_LARGEST = 1 << 31  # of a dimension


# What a save records


def number_of(variable: Any) -> int:
    """TensorFlow's number of a plain variable, in the order of creation; -1 if unknown."""
    digits = str(getattr(variable, "_unique_id", "")).rpartition("_")[2]
    return int(digits) if digits.isdigit() else -1


def of_keras(layer: Any, rank: int, path: str, name: str) -> LayerBuild:
    """Of a layer of Keras 3.

    ``path`` and ``name`` are those that Keras and TensorFlow have for its first variable: where a
    call was traced, TensorFlow's was made after it, in an outer scope.
    """
    shapes = getattr(layer, "_build_shapes_dict", None)
    outer = name.rpartition("/")[0]
    return LayerBuild(
        type(layer).__name__,
        rank,
        getattr(layer, "_parent_path", None) or "",
        None if outer == path.rpartition("/")[0] else outer,
        None if shapes is None else {key: _shape(value) for key, value in shapes.items()},
    )


def of_tf_keras(layer: Any, rank: int, name: str) -> LayerBuild:
    """Of a layer of tf_keras; ``name`` is that of the first variable in or below it."""
    scopes = name.split("/")[:-1]
    around = scopes[: scopes.index(layer.name)] if layer.name in scopes else scopes[:-1]
    shape = getattr(layer, "_build_input_shape", None)
    specs = getattr(layer, "_saved_model_arg_spec", None)
    with contextlib.suppress(TypeError):
        specs = None if specs is None else _spec([*specs])
    return LayerBuild(
        type(layer).__name__,
        rank,
        "/".join(around),
        shapes=None if shape is None else {"input_shape": _shape(shape)},
        specs=specs if isinstance(specs, dict) else None,
    )


def has_own_build(layer: Any) -> bool:
    """Whether its class has a ``build`` that makes variables, or layers."""
    return not hasattr(layer.build, "_is_default")


def _shape(value: Any) -> Any:
    """A shape, or a list or dict of shapes, as JSON values."""
    if isinstance(value, (list, tuple)):
        return [x if x is None or type(x) is int else _shape(x) for x in value]
    if isinstance(value, tf.TensorShape):
        return None if value.rank is None else value.as_list()
    if isinstance(value, dict):
        return {str(key): _shape(each) for key, each in value.items()}
    return value if value is None else str(value)


def _spec(value: Any) -> Any:
    """The specs of a call's arguments as JSON values; a TypeError for another value."""
    if type(value) is tf.TensorSpec:
        return {"shape": _shape(value.shape), "dtype": value.dtype.name}
    if isinstance(value, dict):
        return {"dict": {str(key): _spec(each) for key, each in value.items()}}
    if isinstance(value, (list, tuple)):
        kind = "tuple" if isinstance(value, tuple) else "list"
        return {kind: [_spec(each) for each in value]}
    if isinstance(value, tf.RaggedTensorSpec):
        found = {"shape": _shape(value.shape), "dtype": value.dtype.name}
        return {**found, "ragged": value.ragged_rank}
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise TypeError(type(value))


# What a restore does with it


def build(layer: Any, recorded: LayerBuild, flavor: Any) -> None:
    """Call a layer's ``build`` as it was called before the save."""
    shapes = {name: _given(shape) for name, shape in recorded.shapes.items()}
    if flavor.name == "keras":
        try:
            with _scopes(layer, recorded):
                layer.build(**shapes)
        except ValueError:
            # Keras builds it so where a call cannot be traced, as that of a stateful LSTM.
            if recorded.outer is None or layer.built:
                raise
            with _scopes(layer, msgspec.structs.replace(recorded, outer=None)):
                layer.build(**shapes)
        return
    (shape,) = (_of_tf_keras(shape) for shape in shapes.values())
    with _scope(recorded.scope), tf.name_scope(layer.name):
        layer.build(shape)
    flavor.layer.build(layer, shape)
    layer._initial_weights = None  # else the first call sets `weights=` again


def has_all(layer: Any, recorded: LayerBuild, flavor: Any) -> None:
    """Let a model of tf_keras without a ``build`` of its own count as built: it gives weights."""
    if flavor.name == "tf_keras" and recorded.shapes is not None and not has_own_build(layer):
        (shape,) = recorded.shapes.values()
        flavor.layer.build(layer, _of_tf_keras(_given(shape)))


def trace(layer: Any, recorded: LayerBuild, flavor: Any) -> None:
    """Trace a layer's ``call`` as it was first called: variables are made, nothing is computed."""
    if flavor.name == "keras":
        import keras

        shapes = [_given(shape) for shape in recorded.shapes.values()]
        names = [name.removesuffix("_shape") for name in recorded.shapes]
        tensors = [keras.tree.map_shape_structure(keras.KerasTensor, shape) for shape in shapes]
        with _scopes(layer, recorded), layer._open_name_scope():
            if len(tensors) == 1:
                keras.Operation.compute_output_spec(layer, *tensors)
            else:
                keras.Operation.compute_output_spec(layer, **dict(zip(names, tensors, strict=True)))
        return
    specs = _specs(recorded.specs)
    flat = tf.nest.flatten(specs)
    tensors = [each for each in flat if isinstance(each, tf.TypeSpec)]

    def call(*given: Any) -> Any:
        left = iter(given)
        filled = [next(left) if isinstance(each, tf.TypeSpec) else each for each in flat]
        arguments, keywords = tf.nest.pack_sequence_as(specs, filled)
        for outside, inside in zip(counts, counts_of_names(), strict=False):
            inside.update(outside)  # tf_keras counts the names of each graph apart
        with _scope(recorded.scope):
            return tf.nest.flatten(layer(*arguments, **keywords))[:0]

    counts = counts_of_names()
    with tf.init_scope():
        tf.function(call, autograph=True).get_concrete_function(*tensors)


def build_slots(optimizer: Any, variables: list[Any]) -> None:
    """Create the slots of an optimizer of ``tf.compat.v1.train``."""
    with tf.init_scope():
        optimizer._create_slots(variables)


@contextlib.contextmanager
def _scopes(layer: Any, recorded: LayerBuild) -> Iterator[None]:
    """The name scopes of Keras 3 and of TensorFlow that were open."""
    import keras

    later = recorded.outer is not None
    layer._parent_path = recorded.scope
    with (
        _scope(recorded.scope if recorded.outer is None else recorded.outer),
        keras.StatelessScope() if later else contextlib.nullcontext(),
    ):
        yield


def _scope(path: str) -> Any:
    return tf.name_scope(f"{path}/" if path else "")


def _given(shape: Any) -> Any:
    """The shape, or shapes, that :func:`_shape` has recorded."""
    if isinstance(shape, dict):
        return {key: _given(each) for key, each in shape.items()}
    if isinstance(shape, list) and all(each is None or type(each) is int for each in shape):
        if any(each is not None and not 0 <= each < _LARGEST for each in shape):
            raise ValueError(f"{shape} is not a valid shape")
        return tuple(shape)
    return [_given(each) for each in shape] if isinstance(shape, list) else shape


def _of_tf_keras(shape: Any) -> Any:
    if isinstance(shape, dict):
        return {key: _of_tf_keras(each) for key, each in shape.items()}
    if isinstance(shape, list):
        return [_of_tf_keras(each) for each in shape]
    return None if shape is None else tf.TensorShape(shape)


def _specs(value: Any) -> Any:
    """The specs that :func:`_spec` has recorded."""
    if not isinstance(value, dict):
        return value
    if "ragged" in value:
        return tf.RaggedTensorSpec(value["shape"], value["dtype"], value["ragged"])
    if "dtype" in value:
        return tf.TensorSpec(value["shape"], value["dtype"])
    if "dict" in value:
        return {key: _specs(each) for key, each in value["dict"].items()}
    ((kind, values),) = value.items()
    return tuple(map(_specs, values)) if kind == "tuple" else [*map(_specs, values)]


# What building changes, beside the attributes of layers


def trackers_of(layer: Any) -> list[Any]:
    """What a layer of Keras 3 keeps its lists of variables and layers in."""
    return [tracker] if (tracker := vars(layer).get("_tracker")) is not None else []


# What TensorFlow's wrapper of a dict keeps beside it; `vars` of the wrapper is not this.
_OF_WRAPPERS = (
    "_self_external_modification",
    "_self_last_wrapped_dict_snapshot",
    "_self_name_based_restores",
    "_self_non_string_key",
    "_self_setattr_tracking",
    "_self_unconditional_checkpoint_dependencies",
    "_self_unconditional_deferred_dependencies",
    "_self_unconditional_dependency_names",
    "_self_update_uid",
)


def wrapped(value: Any) -> tuple[dict[Any, Any], dict[str, Any]] | None:
    """The dict in TensorFlow's wrapper, and what the wrapper keeps; None of anything else."""
    inner = getattr(value, "__wrapped__", None) if isinstance(value, dict) else None
    if not isinstance(inner, dict):
        return None
    kept = ((name, getattr(value, name, _OF_WRAPPERS)) for name in _OF_WRAPPERS)
    return inner, {name: each for name, each in kept if each is not _OF_WRAPPERS}


def put_back(wrapper: Any, kept: dict[str, Any]) -> None:
    """Let a wrapper keep what it kept."""
    for name in _OF_WRAPPERS:
        if name in kept:
            setattr(wrapper, name, kept[name])
        elif hasattr(wrapper, name):
            delattr(wrapper, name)


def counts_of_names() -> list[Any]:
    """What each Keras counts automatic names in."""
    found = []
    if "keras" in sys.modules:
        get = optional("keras.src.backend.common.global_state", "get_global_attribute")
        found.append(get("object_name_uids") if get else None)
    if "tf_keras" in sys.modules:
        get = optional("tf_keras.src.backend", "get_default_graph_uid_map")
        found.append(get() if get else None)
    return [each for each in found if each is not None]
