"""Looks private parts up: an absent one is an error that names it, or None where it is optional."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from tfckpt.core import versions
from tfckpt.errors import NotInstalledError

if TYPE_CHECKING:
    from types import TracebackType


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


def required(obj: Any, name: str) -> Any:
    """A private attribute of an object of TensorFlow's or Keras's."""
    try:
        return getattr(obj, name)
    except AttributeError as error:
        cls = obj if isinstance(obj, type) else type(obj)
        raise changed(_package(cls), f"'{cls.__name__}' has no attribute {name!r}") from error


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


def _package(cls: type) -> str:
    """The package that a class comes from; a user's class, that its bases come from."""
    packages = (str(base.__module__).partition(".")[0] for base in cls.__mro__)
    return next((each for each in packages if each in versions.NEWEST_TESTED), "tensorflow")
