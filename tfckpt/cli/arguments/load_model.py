"""``--model MODULE:CALLABLE``: live objects from the user's own code.

Nothing else knows how to build them. What that code prints is for the caller to keep away from
standard output.
"""

from __future__ import annotations

import importlib
import operator
import sys
import traceback
from collections.abc import Mapping
from typing import Any

from absl import flags

from tfckpt.cli.arguments.command import UsageError


def load_objects(target: str) -> dict[str, Any]:
    """What the callable returns, by keyword; a lone model is ``model``.

    Raises:
        UsageError: there is no such callable, or it failed.
    """
    module, colon, name = target.partition(":")
    if not (module and colon and name):
        raise UsageError(f"--model {target!r} is not MODULE:CALLABLE, as in train:build_model")
    if "" not in sys.path:
        sys.path.insert(0, "")  # as for `python -m`: a script beside the config is importable
    try:
        found: Any = importlib.import_module(module)
        if not flags.FLAGS.is_parsed():
            flags.FLAGS.mark_as_parsed()  # a training script's own flags have their defaults
        made = operator.attrgetter(name)(found)()
    except Exception as error:
        if not _is_absent(error, module, name):
            traceback.print_exc()
        raise UsageError(f"--model {target}: {type(error).__name__}: {error}") from None
    return dict(made) if isinstance(made, Mapping) else {"model": made}


def _is_absent(error: Exception, module: str, name: str) -> bool:
    """Whether it is about what --model names, and not about something in that code."""
    if isinstance(error, ModuleNotFoundError):
        return f"{module}.".startswith(f"{error.name}.")
    return isinstance(error, AttributeError) and error.name in name.split(".")
