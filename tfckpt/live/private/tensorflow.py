"""TensorFlow's trackables, variables, savers and delayed restoration.

Seen in TensorFlow 2.16 to 2.21. Without a part that is imported here, importing tfckpt's live half
fails and names it; without an attribute, the call that needs it does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tensorflow as tf

from tfckpt.live.private.parts import needed, required

if TYPE_CHECKING:
    from collections.abc import Mapping

with needed("tensorflow"):
    from tensorflow.python.checkpoint import functional_saver as _functional_saver
    from tensorflow.python.checkpoint import saveable_compat as _saveable_compat
    from tensorflow.python.framework import ops as _ops
    from tensorflow.python.ops import resource_variable_ops as _variable_ops
    from tensorflow.python.saved_model.registration import registration as _registration
    from tensorflow.python.training.saving import saveable_object as _saveable
    from tensorflow.python.util import object_identity as _identity

    MultiDeviceSaver = _functional_saver.MultiDeviceSaver
    SaveSpec = _saveable.SaveSpec
    ObjectIdentityDictionary = _identity.ObjectIdentityDictionary
    ResourceVariable = _variable_ops.ResourceVariable
    uid = _ops.uid  # numbers restorations in order
    Trackable = tf.__internal__.tracking.Trackable
    Delegating = tf.__internal__.tracking.DelegatingTrackableMixin
    Reference = tf.__internal__.tracking.TrackableReference  # a child and its name
    GraphView = tf.__internal__.tracking.ObjectGraphView  # what a saver saves
    wrap = tf.__internal__.tracking.wrap  # lists and dicts, as TensorFlow tracks them
    Sharded: Any = tf.__internal__.distribute.ShardedVariable
    # TensorFlow's CheckpointManager calls this method, which tfckpt.Checkpoint overrides.
    tf.train.Checkpoint._write  # noqa: B018

# Set on an instance, it overrides what is saved of it.
SERIALIZE = "_serialize_to_tensors"
# Of a part of a partitioned variable: the whole one. TensorFlow sets it when it shards.
CONTAINER = "_sharded_container"


# Checkpoints and their savers


def saver_of(checkpoint: Any) -> Any:
    """The ``TrackableSaver`` of a checkpoint."""
    return required(checkpoint, "_saver")


def has_saver_yet(checkpoint: Any) -> bool:
    """Whether a checkpoint has been made, so that what is set on it next was not given to it."""
    return "_saver" in vars(checkpoint)


def root_of(checkpoint: Any) -> Any:
    """The root object of a checkpoint, or a weak reference to it; None without one."""
    return required(checkpoint, "_root")


def attached_to(checkpoint: Any) -> Any:
    """The keyword arguments of a checkpoint with a root object, as references."""
    return required(checkpoint, "_attached_dependencies")


def track(checkpoint: Any, obj: Any, name: str) -> None:
    """Have a checkpoint save an object under a name that it may have already."""
    required(checkpoint, "_track_trackable")(obj, name, overwrite=True)


def track_no_more(checkpoint: Any, name: str) -> None:
    required(checkpoint, "_delete_tracking")(name)


def view_of(saver: Any) -> Any:
    """The objects that a saver saves."""
    return required(saver, "_graph_view")


def set_view(saver: Any, view: Any) -> None:
    saver._graph_view = view


def gather(saver: Any) -> Any:
    """What a saver would write: tensors, feed, registered savers, object graph."""
    return required(saver, "_gather_serialized_tensors")()


def restore_id(status: Any) -> int:
    """The number of a restoration, from the status of TensorFlow's ``restore``."""
    return int(required(status, "_checkpoint").restore_uid)


# Registered savers of the user


def has_saver(obj: Any) -> bool:
    """Whether a saver is registered for an object."""
    return _registration.get_registered_saver_name(obj) is not None


def any_saver() -> bool:
    """Whether the user has registered any saver. Without its list, they are looked for."""
    registry = getattr(_registration, "_saver_registry", None)
    if registry is None:
        return True
    predicates = registry.get_registrations().values()
    return not all(str(each.__module__).startswith("tensorflow.") for each in predicates)


# Trackables


def serialize(obj: Any) -> dict[str, Any]:
    """The tensors that TensorFlow saves of an object."""
    return required(obj, SERIALIZE)()  # type: ignore[no-any-return]


def restore_serialized(obj: Any, tensors: Mapping[str, Any]) -> None:
    required(obj, "_restore_from_tensors")(tensors)


def serializes(obj: Any) -> bool:
    """Whether TensorFlow saves tensors of a trackable that is no variable: an iterator, a table."""
    if required(type(obj), SERIALIZE) is not required(Trackable, SERIALIZE):
        return True
    gather_old = getattr(obj, "_gather_saveables_for_checkpoint", None)  # of older classes
    return gather_old is not None and bool(gather_old())


def as_iterator(cls: Any) -> Any:
    """Decorates a trackable that TensorFlow saves in the place of an iterator."""
    return _saveable_compat.legacy_saveable_name("ITERATOR")(cls)


def delegate(obj: Any) -> Any:
    """What a ``DelegatingTrackableMixin`` stands for."""
    return required(obj, "_trackable")


def initialize(obj: Any) -> None:
    """Give an object TensorFlow's bookkeeping, if it has none yet."""
    required(obj, "_maybe_initialize_trackable")()


def update_id(obj: Any) -> int:
    """The number of the last restoration of an object that has the bookkeeping."""
    return int(required(obj, "_update_uid"))


def was_updated(obj: Any, since: int) -> bool:
    """Whether TensorFlow has restored an object, in a restoration of this number or later."""
    return bool(getattr(obj, "_update_uid", -1) >= since)


def set_update_id(obj: Any, number: int) -> None:
    obj._update_uid = number
