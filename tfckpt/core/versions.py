"""The versions of TensorFlow and Keras: which are needed, and up to which tfckpt was tested.

Nothing is refused because it is new.
"""

from __future__ import annotations

import importlib
import re
import sys

from tfckpt.errors import NotInstalledError

# `Model._initial_epoch` came with Keras 3.1: without it a `fit` cannot be resumed at an epoch.
OLDEST = {"tensorflow": (2, 16), "keras": (3, 1)}
NEWEST_TESTED = {"tensorflow": (2, 21), "keras": (3, 15), "tf_keras": (2, 21)}


def require() -> None:
    """Import TensorFlow and Keras."""
    for package, oldest in OLDEST.items():
        try:
            module = importlib.import_module(package)
        except ModuleNotFoundError as error:
            if error.name != package:  # something inside of it is missing
                raise
            raise NotInstalledError(
                f"this part of tfckpt needs {package}, which is not installed",
                hint="pip install 'tfckpt[tensorflow]', or 'tfckpt[tensorflow-cpu]'",
            ) from None
        if release(module.__version__) < oldest:
            raise NotInstalledError(
                f"{package} {module.__version__} is too old for tfckpt",
                hint=f"pip install '{package}>={_text(oldest)}'",
            )


def installed(package: str) -> str:
    """The version of an imported package."""
    return str(getattr(sys.modules.get(package), "__version__", "unknown"))


def tested(package: str) -> str:
    """The versions that tfckpt was tested with: ``2.16 to 2.21``."""
    oldest = OLDEST.get(package, OLDEST["tensorflow"])  # tf_keras has TensorFlow's numbers
    return f"{_text(oldest)} to {_text(NEWEST_TESTED[package])}"


def in_use() -> str:
    """The imported packages, each with its version and the versions that were tested."""
    found = [package for package in NEWEST_TESTED if package in sys.modules]
    text = ", ".join(f"{name} {installed(name)} (tested: {tested(name)})" for name in found)
    return f"this is {text}"


def release(version: str) -> tuple[int, ...]:
    """Of ``2.22.0-dev20260101``: (2, 22)."""
    return tuple(map(int, re.findall(r"\d+", version)[:2]))


def _text(release: tuple[int, ...]) -> str:
    return ".".join(map(str, release))
