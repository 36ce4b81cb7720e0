"""Registered savers of the user, which TensorFlow calls for objects that match a predicate."""

from __future__ import annotations

from typing import Any

from tensorflow.python.saved_model.registration import registration


def has_saver(obj: Any) -> bool:
    """Whether a saver is registered for an object."""
    return registration.get_registered_saver_name(obj) is not None


def any_registered() -> bool:
    """Whether the user has registered any saver."""
    predicates = registration._saver_registry.get_registrations().values()
    return not all(str(each.__module__).startswith("tensorflow.") for each in predicates)
