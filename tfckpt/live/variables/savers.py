"""Savers of the user's own, which TensorFlow calls for objects that a predicate chooses."""

from __future__ import annotations

from typing import Any

from tensorflow.python.saved_model.registration import registration


def has_saver(obj: Any) -> bool:
    """Whether one is registered for an object."""
    return registration.get_registered_saver_name(obj) is not None


def any_registered() -> bool:
    """Whether any object may have a saver of the user's, whose predicate may answer anything."""
    predicates = registration._saver_registry.get_registrations().values()
    return not all(str(each.__module__).startswith("tensorflow.") for each in predicates)
