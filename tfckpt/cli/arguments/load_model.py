"""``--model MODULE:CALLABLE``: build the model with the user's own code.

The caller redirects what that code prints, so that standard output stays clean.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import operator
import os
import sys
import tempfile
import traceback
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from absl import flags

from tfckpt.cli.arguments.command import UsageError
from tfckpt.errors import NotInstalledError

if TYPE_CHECKING:
    from collections.abc import Iterator


def load_objects(target: str) -> dict[str, Any]:
    """The objects that the callable returns, by keyword; a single object is ``model``."""
    module, colon, name = target.partition(":")
    if not (module and colon and name):
        raise UsageError(f"--model {target!r} is not MODULE:CALLABLE, e.g. train:build_model")
    if "" not in sys.path:
        sys.path.insert(
            0, ""
        )  # like `python -m`: makes a script in the working directory importable
    try:
        if module not in sys.modules and importlib.util.find_spec(module) is not None:
            with _muted_import():
                importlib.import_module("tfckpt.live.private.tensorflow")
        imported: Any = importlib.import_module(module)
        if not flags.FLAGS.is_parsed():
            flags.FLAGS.mark_as_parsed()  # flags of the training script have their defaults
        built = operator.attrgetter(name)(imported)()
    except NotInstalledError:
        raise
    except Exception as error:
        if not _is_absent(error, module, name):
            traceback.print_exc()
        raise UsageError(f"--model {target}: {type(error).__name__}: {error}") from None
    return dict(built) if isinstance(built, Mapping) else {"model": built}


@contextlib.contextmanager
def _muted_import() -> Iterator[None]:
    """Keep from the terminal what TensorFlow's C++ logs when it is imported, unless that fails."""
    if "tensorflow" in sys.modules:
        yield
        return
    sys.stderr.flush()
    with tempfile.TemporaryFile() as logged, os.fdopen(os.dup(2), "wb", closefd=True) as terminal:
        os.dup2(logged.fileno(), 2)
        try:
            yield
        except BaseException:
            logged.seek(0)
            terminal.write(logged.read())
            raise
        finally:
            os.dup2(terminal.fileno(), 2)


def _is_absent(error: Exception, module: str, name: str) -> bool:
    """Whether --model names a module or callable that does not exist."""
    if isinstance(error, ModuleNotFoundError):
        return f"{module}.".startswith(f"{error.name}.")
    return isinstance(error, AttributeError) and error.name in name.split(".")
