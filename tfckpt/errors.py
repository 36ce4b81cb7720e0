"""Every error that tfckpt raises, in one tree.

::

    TfckptError
    ├── NotInstalledError (ImportError)       TensorFlow or Keras is missing, or too old
    ├── PolicyError (ValueError)              a policy or config file says something it cannot mean
    ├── NamingError (ValueError)              a keyword cannot begin the names of its values
    ├── UntrackedError (ValueError)           a checkpoint was given what it cannot save
    ├── CheckpointError                       about files
    │   ├── CheckpointNotFoundError (FileNotFoundError)   there is no checkpoint there
    │   ├── DamagedCheckpointError (ValueError)           there is one, and it cannot be trusted
    │   └── UnsupportedCheckpointError (ValueError)       a format or value that tfckpt cannot read
    ├── RestoreError                          nothing was changed
    │   ├── NotBuiltError (ValueError)        a Keras object has no variables yet
    │   ├── RefusedError (ValueError)         the plan has errors; carries the plan
    │   └── StatusAssertionError (AssertionError)         an assertion on a status failed
    └── SaveError (OSError)                   nothing was committed
        ├── CoverageError                     a variable would have been left out
        └── InUseError                        another process writes to the directory

Each also is the built-in that people already catch for such a fault, so that code written against
plain TensorFlow keeps working. Each carries what it is about as attributes, and a hint where one is
known; the message alone says what happened, where, and what to do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from typing_extensions import Self


class TfckptError(Exception):
    """The root of the tree; ``except tfckpt.TfckptError`` catches all of it."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(f"{message}\n  {hint}" if hint else message)
        self.hint = hint


class NotInstalledError(TfckptError, ImportError):
    """TensorFlow or Keras is missing or too old; the hint says what to install."""


class Problem(NamedTuple):
    """One thing wrong in a config file: where, what, and what to do."""

    message: str
    line: int = 0
    column: int = 0
    hint: str = ""

    def show(self, file: str) -> str:
        place = f"{file}:{self.line}:{self.column}" if self.line else file
        return f"{place}: {self.message}" + (f"\n  {self.hint}" if self.hint else "")


class PolicyError(TfckptError, ValueError):
    """A config is wrong; ``problems`` holds every fault found, not just the first."""

    def __init__(self, file: str, problems: Sequence[Problem]) -> None:
        super().__init__("\n".join(problem.show(file) for problem in problems))
        self.file = file
        self.problems = tuple(problems)


class NamingError(TfckptError, ValueError):
    """A keyword given to a checkpoint cannot be the first component of canonical names."""


class UntrackedError(TfckptError, ValueError):
    """A checkpoint was given a plain number, a function or the like, which it cannot save."""


class CheckpointError(TfckptError):
    """Something about the files of a checkpoint; ``path`` and, where one is meant, ``name``."""

    def __init__(self, message: str, *, path: str = "", name: str = "", hint: str = "") -> None:
        about = f" (value {name!r})" if name else ""
        super().__init__(f"{path}{about}: {message}" if path else message, hint=hint)
        self.message = message
        self.path = path
        self.name = name

    def named(self, names: Mapping[str, str]) -> Self:
        """The same error, about a value by another name where ``names`` has one for it."""
        name = names.get(self.name, self.name)
        return type(self)(self.message, path=self.path, name=name, hint=self.hint)


class CheckpointNotFoundError(CheckpointError, FileNotFoundError):
    """No checkpoint is there."""


class DamagedCheckpointError(CheckpointError, ValueError):
    """A checkpoint is there, but a file of it is torn, truncated, altered or missing."""


class UnsupportedCheckpointError(CheckpointError, ValueError):
    """The file is sound as far as tfckpt can tell, and is of a kind it does not read."""


class RestoreError(TfckptError):
    """A restore did not happen; every variable is as it was."""


class NotBuiltError(RestoreError, ValueError):
    """A Keras object has no variables yet; the hint holds the line of code that builds it."""


class RefusedError(RestoreError, ValueError):
    """The plan has errors. ``plan`` is the whole of it; the message is its report."""

    def __init__(self, message: str, *, plan: Any, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.plan = plan


class StatusAssertionError(RestoreError, AssertionError):
    """An assertion on a restore status failed, and what the restore had assigned was put back."""


class SaveError(TfckptError, OSError):
    """A save did not happen; no file of it is left."""


class CoverageError(SaveError, ValueError):
    """A save would have left out a variable of a Keras object."""


class InUseError(SaveError):
    """Another process is saving into the directory; the message says which, and since when."""
