"""Checks the arguments of a manager and of a save before anything is written.

Without these checks a `max_to_keep` of 1.5 or an epoch of -1 shows up only after the commit: the
save then fails although its files are complete, or writes a record that no reader accepts.
"""

from __future__ import annotations

import inspect
import json
import math
import numbers
import operator
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from tfckpt.core.similar import did_you_mean
from tfckpt.errors import SaveError
from tfckpt.policy import Keep
from tfckpt.policy.messages import problems_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfckpt.stored.commits.record_file import CommitRecord
    from tfckpt.stored.io.files import Files

# The number of digits that are looked for in file names.
_MAX_NUMBER = 10**18 - 1
_MAX_DEPTH = 16
_MAX_BYTES = 1 << 16
# Counters are 64 bits wide.
_MAX_COUNT = 2**63 - 1


def check_keywords(manager: type[Any], keywords: Mapping[str, Any]) -> None:
    """Refuse what a manager does not take, with what to write in its place."""
    from tfckpt.live.arguments import CallSignature, instead_of  # TensorFlow, for managers alone

    known = inspect.signature(manager.__init__).parameters
    if any(each.kind is each.VAR_KEYWORD for each in known.values()):  # of a subclass
        return
    call = CallSignature(arguments=frozenset(known))
    for name in keywords.keys() - known.keys():
        hint = instead_of(name, keywords[name], call) or did_you_mean(name, known.keys() - {"self"})
        raise TypeError(f"{manager.__name__}() has no argument {name!r}; {hint}")


def rules(
    max_to_keep: Any, every_n_hours: Any, keep: Sequence[Keep | Mapping[str, Any]]
) -> tuple[Keep, ...]:
    """The retention rules from all arguments that state them; () keeps all.

    >>> [rule.latest for rule in rules(3, None, [])]
    [3]
    """
    combined = [_rule(rule) for rule in keep]
    newest, hours = _max_to_keep(max_to_keep), _hours(every_n_hours)
    if newest is not None:
        combined.append(Keep(latest=newest))
    if hours and combined:  # where max_to_keep is None, all are kept
        combined.append(Keep(every_n_hours=hours))
    return tuple(combined)


def _rule(rule: Keep | Mapping[str, Any]) -> Keep:
    if isinstance(rule, Keep):
        return rule
    try:
        return Keep.model_validate(rule)
    except ValidationError as error:
        problems = "; ".join(problem.show()[0] for problem in problems_of(error, Keep))
        raise ValueError(f"keep: {rule!r}: {problems}") from None


def _max_to_keep(value: Any) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"max_to_keep must be a positive integer or None, found {value!r}")
    if (number := operator.index(value)) <= 0:
        raise ValueError(f"max_to_keep must be a positive integer or None, found {value}")
    return number


def _hours(value: Any) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool | str) or not hasattr(value, "__float__"):
        raise TypeError(f"keep_checkpoint_every_n_hours must be a number or None, found {value!r}")
    if not (number := float(value)) >= 0:
        raise ValueError(f"keep_checkpoint_every_n_hours must be at least 0, found {value}")
    return number


def one_of(name: str, value: Any, words: tuple[str, ...]) -> str:
    """The value of an argument that has a fixed set of words.

    >>> one_of("if_busy", "wait", ("wait", "skip"))
    'wait'
    """
    if value not in words:
        raise ValueError(f"{name} must be {' or '.join(map(repr, words))}, found {value!r}")
    return str(value)


def included(value: Any, files: Files) -> str:
    """What a save writes: ``all``, or ``trainable`` where files can be shared."""
    if one_of("include", value, ("all", "trainable")) == "trainable" and not files.renames:
        raise ValueError(
            "include='trainable' needs hard links, which only local directories have: leave it "
            "out, or save into a local directory and copy that"
        )
    return str(value)


def checkpoint_name(value: Any) -> str:
    """The prefix of the checkpoints' file names, without a directory.

    >>> checkpoint_name("ckpt")
    'ckpt'
    """
    if not isinstance(value, str):
        raise TypeError(f"checkpoint_name must be a string, found {value!r}")
    if not value or any(char and char in value for char in ("/", os.sep, os.altsep, "\0")):
        raise ValueError(f"checkpoint_name must be a plain file name, found {value!r}")
    return value


def checkpoint_number(value: Any) -> int | None:
    """The number of a checkpoint, from a number, a tensor or a variable; None stays."""
    return None if value is None else _natural("checkpoint_number", value, _MAX_NUMBER)


def check_record(record: CommitRecord) -> None:
    """Refuse what a record cannot hold of the caller's values; turn the rest into plain ones."""
    if record.step is not None:
        record.step = _natural("step", record.step, _MAX_COUNT)
    if record.epoch is not None:
        record.epoch = _natural("epoch", record.epoch, _MAX_COUNT)
    record.metrics = {
        _text("the name of a metric", name): _metric(name, value)
        for name, value in record.metrics.items()
    }
    metadata = _json("metadata", record.metadata)
    if not isinstance(metadata, dict):
        raise _refused(f"metadata must be a dict, found {record.metadata!r}")
    if (nbytes := len(json.dumps(metadata).encode())) > _MAX_BYTES:
        raise _refused(f"metadata has {nbytes:,} bytes, but at most {_MAX_BYTES:,} are allowed")
    record.metadata = metadata


def _json(where: str, value: Any, depth: int = 0) -> Any:
    """A value as JSON, whose NumPy scalars and tuples become numbers and lists."""
    if depth > _MAX_DEPTH:
        raise _refused(f"{where} has more than {_MAX_DEPTH} levels")
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return _encodable(where, value)
    whole = isinstance(value, numbers.Integral)
    if whole and abs(int(value)) <= _MAX_COUNT:
        return int(value)
    if isinstance(value, numbers.Real) and not whole and math.isfinite(value):
        return float(value)
    if isinstance(value, Mapping):
        return {
            _encodable(where, _text(f"a key of {where}", key)): _json(
                f"{where}[{key!r}]", inner, depth + 1
            )
            for key, inner in value.items()
        }
    if isinstance(value, list | tuple):
        return [_json(f"{where}[{at}]", inner, depth + 1) for at, inner in enumerate(value)]
    raise _refused(
        f"{where} must be a string, a finite number of 64 bits, a boolean, None, a list or a dict "
        f"of these, found {value!r}"
    )


def _encodable(where: str, text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise _refused(f"{where} has {text!r}, which is not valid Unicode") from None
    return text


def _natural(argument: str, value: Any, most: int) -> int:
    plain = value.numpy() if hasattr(value, "numpy") else value
    try:
        number = -1 if isinstance(plain, bool) else operator.index(plain)
    except TypeError:
        number = -1
    if not 0 <= number <= most:
        raise _refused(f"{argument} must be an integer from 0 to {most}, found {plain!r}")
    return number


def _text(what: str, name: Any) -> str:
    if not isinstance(name, str):
        raise _refused(f"{what} must be a string, found {name!r}")
    return name


def _metric(name: str, value: Any) -> float:
    try:
        if not isinstance(value, str | bytes):
            return float(value)
    except (TypeError, ValueError, OverflowError):
        pass
    raise _refused(f"the metric {name!r} must be a number, found {value!r}")


def _refused(message: str) -> SaveError:
    return SaveError(message, hint="nothing was written")
