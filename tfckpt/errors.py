"""Every error that tfckpt raises, in one tree.

::

    TfckptError
    ├── NotInstalledError (ImportError)       a package is missing, too old, too new
    ├── PolicyError (ValueError)              a policy or config file is invalid
    ├── NamingError (ValueError)              a keyword argument of a checkpoint cannot be used
    ├── UntrackedError (ValueError)           an object cannot be saved in a checkpoint
    ├── CheckpointError                       an error of checkpoint files
    │   ├── CheckpointNotFoundError (FileNotFoundError)   there is no checkpoint
    │   ├── DamagedCheckpointError (ValueError)           a checkpoint is damaged
    │   └── UnsupportedCheckpointError (ValueError)       tfckpt cannot read the format or a value
    ├── RestoreError                          a restore failed; no variable was changed
    │   ├── NotBuiltError (ValueError)        a Keras object has no variables yet
    │   ├── RefusedError (ValueError)         the plan has errors; has it as `plan`
    │   └── StatusAssertionError (AssertionError)         an assertion on a status failed
    └── SaveError (OSError)                   a save failed; no checkpoint was written
        ├── CoverageError                     the save would leave out a variable
        └── InUseError                        another process writes to the directory

Each is also a subclass of the built-in exception that people already catch for such an error, so
that code written for plain TensorFlow keeps working. The message says what happened, where, and
what to do; details and the hint are attributes too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from typing_extensions import Self


# What a PolicyError names in place of a file, where the arguments of a call are wrong.
ARGUMENTS = "the arguments"


class TfckptError(Exception):
    """Base class of all errors of tfckpt."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(f"{message}\n  {hint}" if hint else message)
        self.hint = hint


class NotInstalledError(TfckptError, ImportError):
    """TensorFlow, Keras or what a remote path needs is missing, too old or too new.

    The hint says what to install.
    """


class Problem(NamedTuple):
    """One error in a config: what is wrong, where, and what to do."""

    message: str
    line: int = 0
    column: int = 0
    hint: str = ""

    def show(self, file: str) -> str:
        position = f"{file}:{self.line}:{self.column}" if self.line else file
        return f"{position}: {self.message}" + (f"\n  {self.hint}" if self.hint else "")


class PolicyError(TfckptError, ValueError):
    """A config is invalid; ``problems`` has all errors found, not just the first."""

    def __init__(self, file: str, problems: Sequence[Problem]) -> None:
        super().__init__("\n".join(problem.show(file) for problem in problems))
        self.file = file
        self.problems = tuple(problems)


class NamingError(TfckptError, ValueError):
    """A keyword argument of a checkpoint cannot be the first component of canonical names."""


class UntrackedError(TfckptError, ValueError):
    """An object, e.g. a plain number, a function or a DTensor variable, cannot be saved."""


class CheckpointError(TfckptError):
    """An error of the files at ``path``; ``name`` is the value that it is about, or ``""``."""

    def __init__(self, message: str, *, path: str = "", name: str = "", hint: str = "") -> None:
        value = f" (value {name!r})" if name else ""
        super().__init__(f"{path}{value}: {message}" if path else message, hint=hint)
        self.message = message
        self.path = path
        self.name = name

    def named(self, names: Mapping[str, str], hint: str = "") -> Self:
        """The same error, with the value's name replaced if ``names`` has another one for it.

        With ``hint`` if it has none.
        """
        name = names.get(self.name, self.name)
        return type(self)(self.message, path=self.path, name=name, hint=self.hint or hint)


class CheckpointNotFoundError(CheckpointError, FileNotFoundError):
    """There is no checkpoint at the path."""


class DamagedCheckpointError(CheckpointError, ValueError):
    """A file of the checkpoint is incomplete, truncated, altered or missing."""


class UnsupportedCheckpointError(CheckpointError, ValueError):
    """tfckpt does not support the format of the file or of a value; it need not be damaged."""


class RestoreError(TfckptError):
    """A restore failed; no variable was changed."""


class NotBuiltError(RestoreError, ValueError):
    """A Keras object has no variables yet; the hint has the line of code that builds it."""


class RefusedError(RestoreError, ValueError):
    """The plan of a restore has errors; ``plan`` is the plan, the message its report.

    ``suggestion`` is a policy with which the restore is possible, None if none was found.
    """

    def __init__(self, message: str, *, plan: Any, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.plan = plan

    @property
    def suggestion(self) -> Any:
        """The policy that the message shows; None if it shows none."""
        found = self.plan.suggestion
        return None if found is None else found.policy


class StatusAssertionError(RestoreError, AssertionError):
    """An assertion on a restore status failed; the variables have their old values again."""


class SaveError(TfckptError, OSError):
    """A save failed; no checkpoint was written."""


class CoverageError(SaveError, ValueError):
    """A save would leave out a variable of a Keras object."""


class NameTakenError(SaveError, FileExistsError):
    """There is a file of this name, which is not written over."""


class InUseError(SaveError):
    """Another process is saving into the directory; the message has its id and start time."""
