"""Errors that are also TensorFlow's, for code that already catches TensorFlow's."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import tensorflow as tf

    from tfckpt.errors import TfckptError


def also(error: TfckptError, theirs: tf.errors.OpError) -> TfckptError:
    """The same error (also an OSError) with TensorFlow's class as a base, for ``except tf.errors``.

    ``theirs`` is what TensorFlow raises, or would raise, for the same problem.
    """
    classes: Any = type(error), type(theirs)
    return _both(*classes)(error, theirs)  # type: ignore[no-any-return]


@functools.cache
def _both(ours: Any, theirs: Any) -> Any:
    def __init__(self: Any, error: TfckptError, cause: Any) -> None:  # noqa: N807 (it becomes one)
        theirs.__init__(self, cause.node_def, cause.op, str(error))
        OSError.__init__(self, str(error))  # last: OpError clears the arguments
        self.__dict__.update(vars(error))

    body = {"__init__": __init__, "__module__": ours.__module__, "__doc__": ours.__doc__}
    return type(ours.__name__, (ours, theirs), body)
