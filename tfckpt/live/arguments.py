"""Refuses what a checkpoint would silently not save, as soon as it is passed to a call.

TensorFlow saves what it tracks: variables, and objects that hold them. It silently skips a plain
number on an attribute (``checkpoint.epoch = 7``) or in a dict, which then has its initial value
after a restore. Numbers next to variables only cause a warning, because TensorFlow's own code has
such lists. Text, None and other objects on attributes are allowed.

A keyword whose value holds no object is one only by mistake: it is a key of a policy, used where
the call takes a policy; or a key of a config, or a word of TensorFlow or Keras, and is refused with
what to write, and where.
"""

from __future__ import annotations

import dataclasses
import types
import weakref
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import tensorflow as tf
from absl import logging

from tfckpt.core.similar import did_you_mean
from tfckpt.errors import ARGUMENTS, NamingError, PolicyError, Problem, UntrackedError
from tfckpt.live.flavors import flavor_of
from tfckpt.live.private.tensorflow import Trackable, wrap
from tfckpt.policy import Config, Policy, words
from tfckpt.policy.messages import as_yaml, keys_of, meanings
from tfckpt.stored.bundles.keys import EXTRA

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tfckpt.policy.words import SectionKeys

_TRACKED = (Trackable, type(tf.function(len)))
_NUMBERS = (bool, int, float, complex, np.generic)
_ARRAYS = (np.ndarray, tf.Tensor)
_FUNCTIONS = (types.FunctionType, types.MethodType)
_SHOWN = 40
_CONTAINERS = (dict, list, tuple)
_OPTIMIZER = "policy.optimizer"
_LIKE = 0.85
# Names of what a tfckpt.Checkpoint keeps itself.
OWN = frozenset({EXTRA, "_background", "_late", "_lineage", "_logged", "_resumes_in"})
RESERVED = "the keyword {name!r} is reserved; use another keyword"
_HINT = (
    "pass variables, Keras models, layers and optimizers, tf.Modules, iterators, or lists and "
    "dicts of them"
)


class CallSignature(NamedTuple):
    """What a call does with keywords that hold no object.

    Attributes:
        nothing: what they are called.
        arguments: those that the call has besides objects.
        in_config: whether the call has a config, in which everything else is written.
    """

    nothing: str = "no object to save"
    arguments: frozenset[str] = frozenset()
    in_config: bool = False


POLICY_KEYS = frozenset({*keys_of(Policy), "assert_"})
OBJECTS = CallSignature()
BY_CONFIG = CallSignature(in_config=True)
BY_POLICY = CallSignature(
    "neither an object that can be restored nor a key of a policy",
    POLICY_KEYS - {"assert"} | {"policy", "select"},
)


def check_arguments(root: Any, objects: Mapping[str, Any], call: CallSignature) -> None:
    """Refuse arguments of a checkpoint that TensorFlow does not track."""
    if reserved := OWN & objects.keys():
        raise NamingError(RESERVED.format(name=min(reserved)))
    problems = [
        Problem(f"{name}: {call.nothing}", hint=hint)
        for name, value in objects.items()
        if (hint := instead_of(name, value, call))
    ]
    if problems:
        raise PolicyError(ARGUMENTS, problems)
    if isinstance(root, _CONTAINERS):
        message = (
            f"the first argument is a {type(root).__name__}, and a checkpoint's root is one object"
        )
        raise UntrackedError(
            message, hint="pass it by keyword, `objects=…`; a dict also as `**objects`"
        )
    for name, argument in {**({} if root is None else {"root": root}), **objects}.items():
        obj = argument() if isinstance(argument, weakref.ref) else argument
        if not isinstance(wrap(obj), _TRACKED):
            raise UntrackedError(f"`{name}` is {_kind(obj)}", hint=_instead(f"{name}=", obj))
        _check_inside(name, obj)
        if isinstance(obj, _CONTAINERS) and obj and not holds_object(obj):
            raise UntrackedError(f"`{name}` is {_kind(obj)}", hint=_HINT)


def holds_object(value: Any) -> bool:
    """Whether a value is an object that a checkpoint saves, or a container of one."""
    if isinstance(value, weakref.ref):
        return True
    members = (each for _, each in _inside("", value, set()))
    return any(isinstance(each, _TRACKED) or flavor_of(each) is not None for each in members)


def keys_and_objects(keywords: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The keywords that are keys of a policy, and all others, which should be objects."""
    keys, objects, problems = dict[str, Any](), dict[str, Any](), []
    for keyword, value in keywords.items():
        if keyword not in POLICY_KEYS:
            objects[keyword] = value
        elif not holds_object(value):
            keys[_key(keyword)] = value
        else:
            objects[keyword] = value
            if isinstance(value, list | tuple) and not all(map(holds_object, value)):
                message = f"{keyword}: the list has both objects and other values"
                hint = "it is a key of a policy; pass objects by another keyword"
                problems.append(Problem(message, hint=hint))
    if problems:
        raise PolicyError(ARGUMENTS, problems)
    return keys, objects


def one_policy(policy: Any, keys: Mapping[str, Any]) -> Any:
    """The argument ``policy``, or the keys of one that were passed in its place."""
    if policy is None or not keys:
        return keys or policy
    hint = f"write {', '.join(f'`{key}`' for key in keys)} into the policy"
    problem = Problem("both `policy` and keys of a policy were given", hint=hint)
    raise PolicyError(ARGUMENTS, [problem])


def instead_of(keyword: str, value: Any, call: CallSignature) -> str:
    """What to write in place of a keyword that holds no object; "" if it holds one, or is empty."""
    if holds_object(value) or not isinstance(value, (*_NUMBERS, *_CONTAINERS, str)):
        return ""
    if any(isinstance(each, _ARRAYS) for _, each in _inside("", value, set())):
        return _HINT
    if keyword in words.SAYS:
        return words.SAYS[keyword]
    near, found = meanings(_key(keyword), value, Config, call.arguments, _LIKE)
    asked = f"did you mean `{near}`? " if near not in {"", _key(keyword)} else ""
    if near in call.arguments:
        return asked.strip()
    if hints := [_written(each, call) for each in found if _may_be(each, value)]:
        return asked + ", or ".join(hints)
    listed = call.arguments and value and isinstance(value, (str, *_CONTAINERS))
    return did_you_mean(keyword, call.arguments) if listed else ""


def _may_be(meaning: SectionKeys, value: Any) -> bool:
    """An optimizer's rules are words: ``iterations=0`` is a variable that was forgotten."""
    return meaning.section != _OPTIMIZER or isinstance(value, str)


def _written(meaning: SectionKeys, call: CallSignature) -> str:
    """Which keys to write, and where."""
    section, keys = meaning
    if not keys:
        return words.DEFAULT
    if section == _OPTIMIZER:
        section, keys = "policy", {"optimizer": keys}
    python = ", ".join(f"{'assert_' if k == 'assert' else k}={v!r}" for k, v in keys.items())
    if keys.keys() <= {*map(_key, call.arguments)}:
        return f"write `{python}`"
    if not call.in_config and (section == "policy" or keys.keys() <= {"policy", "select"}):
        return f"pass `{python}` to `tfckpt.restore(path, …)`"
    config = "the config" if call.in_config else "a config"
    of = {"config": "", "policy": "the policy of "}.get(section, f"`{section}` of ")
    also = "pass it to `tfckpt.CheckpointManager(checkpoint, directory, …)`, or "
    manages = section == "manager" and not call.in_config
    return f"{also if manages else ''}write `{as_yaml(keys)}` into {of}{config}"


def _key(keyword: str) -> str:
    return "assert" if keyword == "assert_" else keyword


def check_attribute(name: str, value: Any) -> None:
    """Refuse a plain number, an array, or a container of only numbers as an attribute."""
    if isinstance(value, (*_NUMBERS, *_ARRAYS)):
        raise UntrackedError(
            f"`{name}` is {_kind(value)}, which a checkpoint does not save",
            hint=f"{_instead(f'checkpoint.{name} = ', value)}; "
            f"checkpoint.{name}.assign(…) changes it",
        )
    _check_inside(name, value)


def _check_inside(name: str, obj: Any) -> None:
    """Refuse containers of only numbers; warn about numbers next to trackable objects."""
    found = [*_inside(name, obj, set())]
    plain = [(path, each) for path, each in found if isinstance(each, _NUMBERS)]
    if not plain:
        return
    path, first = plain[0]
    more = f" (and {len(plain) - 1} more in `{name}`)" if len(plain) > 1 else ""
    message = f"{path} is {_kind(first)}{more}, which a checkpoint does not save"
    if not any(isinstance(each, _TRACKED) for _, each in found):
        raise UntrackedError(message, hint=f"use {_variable(first)} instead")
    logging.warning("%s: use %s instead", message, _variable(first))


def _inside(path: str, obj: Any, seen: set[int]) -> Iterator[tuple[str, Any]]:
    """The members of lists, dicts and dataclasses, recursively, each with its path."""
    if isinstance(obj, dict):
        members = [(str(key), value) for key, value in obj.items()]
    elif isinstance(obj, (list, tuple)):
        members = [(str(index), value) for index, value in enumerate(obj)]
    elif dataclasses.is_dataclass(obj) and not isinstance(obj, (type, *_TRACKED)):
        members = [(each.name, getattr(obj, each.name)) for each in dataclasses.fields(obj)]
    else:
        yield path, obj
        return
    if id(obj) not in seen:
        seen.add(id(obj))
        for name, value in members:
            yield from _inside(f"{path}/{name}", value, seen)


def _kind(obj: Any) -> str:
    for kinds, text in (
        (bool, "a plain bool ({shown})"),
        (_NUMBERS, "a plain number ({shown})"),
        (np.ndarray, "an array, not a variable"),
        (tf.Tensor, "a tensor, not a variable"),
        ((str, bytes), "plain text ({shown})"),
        (_FUNCTIONS, "a function"),
        (type, "the class {name}"),
        (type(None), "None"),
        (dict, "a dict that holds no variable"),
        (_CONTAINERS, "a list that holds no variable"),
    ):
        if isinstance(obj, kinds):
            return text.format(shown=_shown(obj), name=getattr(obj, "__name__", ""))
    return f"a {type(obj).__name__}, which TensorFlow does not track"


def _instead(statement: str, obj: Any) -> str:
    """What to write instead."""
    if isinstance(obj, (*_NUMBERS, *_ARRAYS, str, bytes)):
        return f"make it a variable: {statement}{_variable(obj)}"
    if isinstance(obj, (*_FUNCTIONS, type)):
        name = obj.__name__ if obj.__name__.isidentifier() else "build"
        return f"call it: {statement}{name}()"
    return _HINT


def _variable(obj: Any) -> str:
    return f"tf.Variable({'value' if isinstance(obj, _ARRAYS) else _shown(obj)})"


def _shown(obj: Any) -> str:
    text = repr(obj.item() if isinstance(obj, np.generic) else obj)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
