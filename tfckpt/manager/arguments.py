"""What a manager and a save are given, checked before anything is written.

Python takes 1.5 for a number of checkpoints and -1 for an epoch until the commit has happened; then
the save fails although its files are there, or succeeds with a record that no reader accepts.
"""

from __future__ import annotations

import dataclasses
import operator
import os
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from tfckpt.errors import SaveError
from tfckpt.policy import Keep
from tfckpt.policy.messages import problems_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tfckpt.live.saving.save import RecordMetadata

# As many digits as are looked for in file names, where numbers are found again.
_MAX_NUMBER = 10**18 - 1
# Counters are 64 bits wide.
_MAX_COUNT = 2**63 - 1


def rules(
    max_to_keep: Any, every_n_hours: Any, keep: Sequence[Keep | Mapping[str, Any]]
) -> tuple[Keep, ...]:
    """What to keep, by any spelling; () keeps all.

    >>> [rule.latest for rule in rules(3, None, [])]
    [3]
    """
    found = [_rule(rule) for rule in keep]
    newest, hours = _max_to_keep(max_to_keep), _hours(every_n_hours)
    if newest is not None:
        found.append(Keep(latest=newest))
    if hours and found:  # where max_to_keep is None, all are kept
        found.append(Keep(every_n_hours=hours))
    return tuple(found)


def _rule(rule: Keep | Mapping[str, Any]) -> Keep:
    if isinstance(rule, Keep):
        return rule
    try:
        return Keep.model_validate(rule)
    except ValidationError as error:
        problems = "; ".join(found.show()[0] for found in problems_of(error, Keep))
        raise ValueError(f"keep: {rule!r}: {problems}") from None


def _max_to_keep(value: Any) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"max_to_keep is a positive integer or None, found {value!r}")
    if (number := operator.index(value)) <= 0:
        raise ValueError(f"max_to_keep is a positive integer or None, found {value}")
    return number


def _hours(value: Any) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool | str) or not hasattr(value, "__float__"):
        raise TypeError(f"keep_checkpoint_every_n_hours is a number or None, found {value!r}")
    if not (number := float(value)) >= 0:
        raise ValueError(f"keep_checkpoint_every_n_hours is at least 0, found {value}")
    return number


def one_of(name: str, value: Any, words: tuple[str, ...]) -> str:
    """One of the words that an argument may be.

    >>> one_of("if_busy", "wait", ("wait", "skip"))
    'wait'
    """
    if value not in words:
        raise ValueError(f"{name} is {' or '.join(map(repr, words))}, found {value!r}")
    return str(value)


def checkpoint_name(value: Any) -> str:
    """What file names may begin with.

    >>> checkpoint_name("ckpt")
    'ckpt'
    """
    if not isinstance(value, str):
        raise TypeError(f"checkpoint_name is text, found {value!r}")
    if not value or any(mark and mark in value for mark in ("/", os.sep, os.altsep, "\0")):
        raise ValueError(f"checkpoint_name is a plain file name, found {value!r}")
    return value


def checkpoint_number(value: Any) -> int | None:
    """The number of a checkpoint, from a number, a tensor or a variable; None stays.

    Raises:
        SaveError: it is none.
    """
    return None if value is None else _natural("checkpoint_number", value, _MAX_NUMBER)


def about(given: RecordMetadata) -> RecordMetadata:
    """What the record is to say, as it can be written and read again.

    Raises:
        SaveError: step or epoch is no whole number from 0 on, or a metric no number.
    """
    step = None if given.step is None else _natural("step", given.step, _MAX_COUNT)
    epoch = None if given.epoch is None else _natural("epoch", given.epoch, _MAX_COUNT)
    metrics = {_text(name): _metric(name, value) for name, value in given.metrics.items()}
    return dataclasses.replace(given, step=step, epoch=epoch, metrics=metrics)


def _natural(what: str, value: Any, most: int) -> int:
    plain = value.numpy() if hasattr(value, "numpy") else value
    try:
        number = -1 if isinstance(plain, bool) else operator.index(plain)
    except TypeError:
        number = -1
    if not 0 <= number <= most:
        raise _refused(f"{what} is a whole number from 0 to {most}, found {plain!r}")
    return number


def _text(name: Any) -> str:
    if not isinstance(name, str):
        raise _refused(f"the name of a metric is text, found {name!r}")
    return name


def _metric(name: str, value: Any) -> float:
    try:
        if not isinstance(value, str | bytes):
            return float(value)
    except (TypeError, ValueError, OverflowError):
        pass
    raise _refused(f"the metric {name!r} is a number, found {value!r}")


def _refused(message: str) -> SaveError:
    return SaveError(message, hint="nothing was written")
