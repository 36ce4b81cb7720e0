"""TensorFlow's trackables, variables, savers and delayed restoration.

Seen in TensorFlow 2.16 to 2.21. Without a part that is imported here, importing tfckpt's live half
fails and names it; without an attribute, the call that needs it does.
"""

from __future__ import annotations

import functools
import importlib
import os
import traceback
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

import tensorflow as tf

from tfckpt.core import versions
from tfckpt.errors import NotInstalledError

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

_Function = TypeVar("_Function", bound="Callable[..., Any]")
_HERE = f"{Path(__file__).parents[2]}{os.sep}"  # the package


class needed:  # noqa: N801 (used as a statement)
    """Turns a failed import, or an absent attribute of a module, into an error of tfckpt's."""

    def __init__(self, package: str) -> None:
        self._package = package

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: Any, trace: TracebackType | None
    ) -> None:
        if isinstance(error, (ImportError, AttributeError)):
            raise changed(self._package, str(error)) from error


def naming_what_is_gone(function: _Function) -> _Function:
    """Decorate a call of tfckpt's: an attribute that TensorFlow or Keras does not have is named.

    One that a line of tfckpt's asks for; an error of a user's class is none of it.
    """

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except AttributeError as error:
            *_, (frame, _) = traceback.walk_tb(error.__traceback__)
            package = _package(error.obj)
            if package is None or not frame.f_code.co_filename.startswith(_HERE):
                raise
            raise changed(package, str(error)) from error

    return call  # type: ignore[return-value]


def optional(module: str, name: str) -> Any:
    """A name of a private module, or None."""
    try:
        return getattr(importlib.import_module(module), name, None)
    except ImportError:
        return None


def changed(package: str, what: str) -> NotInstalledError:
    """The error for a private part that the installed version of a package does not have."""
    return NotInstalledError(
        f"tfckpt uses a private part of {package} that the installed version "
        f"{versions.installed(package)} does not have: {what}",
        hint=f"tfckpt was tested with {package} {versions.tested(package)}: install one of these, "
        "or a newer tfckpt",
    )


def _package(obj: object) -> str | None:
    """The package that an object comes from; one of a user's class, that its bases come from."""
    cls = obj if isinstance(obj, type) else type(obj)
    places = [obj.__name__] if isinstance(obj, ModuleType) else [b.__module__ for b in cls.__mro__]
    packages = (str(place).partition(".")[0] for place in places)
    return next((each for each in packages if each in versions.NEWEST_TESTED), None)


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
    wrap = tf.__internal__.tracking.wrap  # lists and dicts, as TensorFlow tracks them
    Sharded: Any = tf.__internal__.distribute.ShardedVariable
    # TensorFlow's CheckpointManager calls this method, which tfckpt.Checkpoint overrides.
    tf.train.Checkpoint._write  # noqa: B018

# Set on an instance, it overrides what is saved of it.
SERIALIZE = "_serialize_to_tensors"
# Of a part of a partitioned variable: the whole one. TensorFlow sets it when it shards.
CONTAINER = "_sharded_container"


# Checkpoints and their savers


# Registered savers of the user


def saver_name(obj: Any) -> str | None:
    """The name of the saver that is registered for an object, if there is one."""
    found: str | None = _registration.get_registered_saver_name(obj)
    return found


def has_saver(obj: Any) -> bool:
    """Whether a saver is registered for an object."""
    return saver_name(obj) is not None


def any_saver() -> bool:
    """Whether the user has registered any saver. Without its list, they are looked for."""
    registry = getattr(_registration, "_saver_registry", None)
    if registry is None:
        return True
    predicates = registry.get_registrations().values()
    return not all(str(each.__module__).startswith("tensorflow.") for each in predicates)


# Trackables


def serializes(obj: Any) -> bool:
    """Whether TensorFlow saves tensors of a trackable that is no variable: an iterator, a table."""
    if getattr(type(obj), SERIALIZE) is not getattr(Trackable, SERIALIZE):
        return True
    gather_old = getattr(obj, "_gather_saveables_for_checkpoint", None)  # of older classes
    return gather_old is not None and bool(gather_old())


def as_iterator(cls: Any) -> Any:
    """Decorates a trackable that TensorFlow saves in the place of an iterator."""
    return _saveable_compat.legacy_saveable_name("ITERATOR")(cls)


_WAITING = "_self_unconditional_deferred_dependencies"


def waiting(obj: Any) -> dict[str, str]:
    """Name → checkpoint, of the children whose values TensorFlow restores when they come.

    Without those of a restore on whose status ``expect_partial`` was called.
    """
    held = getattr(obj, "__dict__", {}).get(_WAITING) or {}
    return {
        name: positions[-1].checkpoint.save_path_string
        for name, positions in held.items()
        if positions and not positions[-1].checkpoint.expect_partial
    }


def forget(obj: Any, name: str) -> None:
    """Restore nothing more of a child that may come."""
    getattr(obj, _WAITING).pop(name, None)


def silence(status: Any) -> None:
    """Let TensorFlow warn of nothing that is left over; what waits still waits."""
    status._checkpoint._deleter.set_expect_partial(True)


def initialize(obj: Any) -> None:
    """Give an object TensorFlow's bookkeeping, if it has none yet."""
    obj._maybe_initialize_trackable()


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
