"""Loads a config from a file or mapping, and reports all its errors at once.

Errors in the YAML and in its values are collected over the whole file, each with line and column; a
mapping made in Python has paths of keys instead. The keys of a policy that others extend are put
there before anything is checked, each with its line. A config from a file remembers the line of
each rule of its policies, so that later messages about a rule can name it. The only exception
raised is :class:`~tfckpt.errors.PolicyError`.
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Any, Final, TypeVar

from pydantic import ValidationError

from tfckpt.core.similar import did_you_mean, near_paths, question
from tfckpt.errors import PolicyError, Problem
from tfckpt.policy.config import STRICT, Config
from tfckpt.policy.fields import Model
from tfckpt.policy.messages import ConfigFault, Path, problems_of, show_path, show_value
from tfckpt.policy.policy import Policy, RuleLocations
from tfckpt.policy.yaml_loader import BAD, MAX_BYTES, MAX_DEPTH, Document, parse
from tfckpt.stored.io.explain import SINGLE_FILES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tfckpt.policy.yaml_loader import Mark

CONFIGS = (".yaml", ".yml", ".json")
"""File name suffixes of configs."""

_PART = re.compile(r"([^][.]+)|\[(\d+)\]")
_MAPPING = "the config mapping"

_EXTENDS: Final = "extends"
_BUILT_IN: Final[dict[str, Any]] = {STRICT.name: {}}
_MOST_EXTENDED: Final = 16  # one above another

# The path of a policy → each of its keys → the path of the policy that has it.
_Keys = dict[tuple[str | int, ...], dict[str, tuple[str | int, ...]]]

_Source = str | os.PathLike[str] | Mapping[str, Any]
_M = TypeVar("_M", bound=Model)


def load_config(
    source: _Source | Config,
    env: Mapping[str, str] = os.environ,
    changes: Mapping[str, str] | None = None,
) -> Config:
    """Load a config.

    Args:
        source: a YAML file, a mapping of the same keys, or a config, which is returned unchanged.
        env: values for ``${VAR}``.
        changes: ``KEY=VALUE`` → where it is said, which errors name: ``restore.path=zoo/x`` and
            ``manager.keep[0].latest=2`` set one key, whose value is YAML.

    Raises:
        PolicyError: with all errors of the source.

    >>> config = load_config({"version": 1, "restore": {"directory": "${RUNS}/a"}}, {"RUNS": "r"})
    >>> config.restore.first_of[0].directory
    'r/a'

    """
    if isinstance(source, Config):
        return source
    document, file = _read(source)
    document = _extended(_changed(document, changes or {}))
    config = _validate(Config, document, file, env)
    config._locations = RuleLocations(file, (), document.keys)
    for path, policy in _policies_in(config, ()):
        _locate(policy, path, document, file)
    return config


def load_policy(
    source: _Source | Policy, env: Mapping[str, str] = os.environ, called: str = _MAPPING
) -> Policy:
    """Load one policy: the keys that stand under its name in a config.

    Args:
        source: a YAML file, whose stem becomes the policy's name; a mapping; or a policy.
        env: values for ``${VAR}``.
        called: what error messages call a mapping.

    Raises:
        PolicyError: with all errors of the source.

    >>> load_policy({"include": ["model/**"], "assert": "none"}).on_missing
    'warn'

    """
    if isinstance(source, Policy):
        return source
    document, file = _read(source, called)
    policy = _validate(Policy, document, file, env)
    if not isinstance(source, Mapping):
        policy = policy.model_copy(update={"name": FilePath(source).stem})
    _locate(policy, (), document, file)
    return policy


def _read(source: object, file: str = _MAPPING) -> tuple[Document, str]:
    if isinstance(source, Mapping):
        return Document(_plain(source, 0, file), {(): (0, 0)}, {}), file
    if not isinstance(source, str | os.PathLike):
        message = f"expected the path of a YAML file, or a mapping, found {show_value(source)}"
        raise PolicyError("the config", [Problem(message)])
    file = os.fspath(source)
    try:
        with FilePath(file).open("rb") as stream:
            raw = stream.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        raise PolicyError(file, [_unreadable(file, error)]) from None
    return parse(raw, file), file


def _unreadable(file: str, error: Exception) -> Problem:
    path, hint = os.path.abspath(file) if "\0" not in file else file, ""  # noqa: PTH100  text
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        hint = question(near_paths(file, _names, _is_config))
        return Problem(f"there is no config file: {path} does not exist", hint=hint)
    if isinstance(error, IsADirectoryError):
        hint = f"to restore from it, write `restore: {{directory: {file}}}` in a config"
        return Problem(f"is a directory, not a config file: {path}", hint=hint)
    reason = getattr(error, "strerror", None) or str(error)
    return Problem(f"cannot read the file: {reason}")


def _names(directory: str) -> list[str]:
    try:
        return os.listdir(directory or ".")  # noqa: PTH208  names, not paths
    except OSError:
        return []


def has_config_name(path: str) -> bool:
    """Whether a path is called like a config, and not like a checkpoint in JSON."""
    return path.endswith(CONFIGS) and not path.endswith((*SINGLE_FILES, ".tfckpt.json"))


def _is_config(path: str) -> bool:
    return path.endswith(CONFIGS) and FilePath(path).is_file()


def _plain(value: Any, depth: int, file: str) -> Any:
    if depth > MAX_DEPTH:
        raise PolicyError(file, [Problem(f"values are nested more than {MAX_DEPTH} deep")])
    if isinstance(value, Mapping):
        return {key: _plain(inner, depth + 1, file) for key, inner in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [_plain(inner, depth + 1, file) for inner in value]
    return value


def _validate(model: type[_M], document: Document, file: str, env: Mapping[str, str]) -> _M:
    declared = document.data.get("policies")
    context = {"env": env, "policies": declared if isinstance(declared, dict) else {}}
    problems, value = list(document.problems), None
    try:
        value = model.model_validate(document.data, context=context, by_alias=True, by_name=False)
    except ValidationError as error:
        faults = (fault for fault in problems_of(error, model) if fault.value is not BAD)
        problems += (_with_position(fault, document) for fault in faults)
    if problems or value is None:
        raise PolicyError(file, sorted(_once(problems), key=lambda problem: problem[1:3]))
    return value


def _once(problems: Iterable[Problem]) -> Iterable[Problem]:
    """Without those that a policy has by a line of another one, which it extends."""
    found: dict[Any, Problem] = {}
    for each in problems:
        message = each.message.partition(": ")[2]
        found.setdefault((each[1:], message) if each.line else each, each)
    return found.values()


def _policies_in(value: object, path: Path) -> Iterator[tuple[Path, Policy]]:
    """The policies in a part of a config, each with its path."""
    if isinstance(value, Policy):
        yield path, value
        return
    below: Iterable[tuple[Any, Any]] = ()
    if isinstance(value, dict | Model):
        below = value.items() if isinstance(value, dict) else value
    elif isinstance(value, tuple):
        below = enumerate(value)
    for key, inner in below:
        yield from _policies_in(inner, (*path, key))


def _locate(policy: Policy, path: Path, document: Document, file: str) -> None:
    if document.keys:
        policy._locations = RuleLocations(file, path, document.values)


def _with_position(fault: ConfigFault, document: Document) -> Problem:
    path = fault.path
    message, _, _, hint = fault.show()
    changed = (document.changed.get(path[:end]) for end in range(len(path), 0, -1))
    if said := next(filter(None, changed), ""):
        return Problem(f"{said}: {message}", hint=hint)
    if (other := document.keys.get((*path[:-1], fault.other))) and fault.other:
        message += f" (`{fault.other}` is on line {other[0]})"
    positions = document.keys if fault.about_key else document.values
    position = positions.get(path)
    while position is None and path:
        *rest, last = path
        path = tuple(rest)
        above = document.values.get(path)
        position = above if isinstance(last, int) else document.keys.get(path, above)
    position = position or document.values[()]
    return Problem(message, *position, hint)


# Changes from elsewhere

_CHANGE = re.compile(r"([^][.=]+(?:\[\d+\])*(?:\.[^][.=]+(?:\[\d+\])*)*)=(.*)", re.DOTALL)


def _changed(document: Document, changes: Mapping[str, str]) -> Document:
    """The document, with other values of some keys."""
    data, problems, changed = document.data, list(document.problems), dict[Path, str]()
    for text, said in changes.items():
        if (match := _CHANGE.fullmatch(text)) is None:
            hint = "e.g. restore.path=zoo/ckpt-1, or manager.keep[0].latest=2"
            problems.append(Problem(f"{said}: expected KEY=VALUE, found {text!r}", hint=hint))
            continue
        path = tuple(int(at) if at else key for key, at in _PART.findall(match[1]))
        wrong: Sequence[Problem] = ()
        try:
            value = parse(f"value: {match[2]}".encode(), said)
            data, wrong = _put(data, path, value.data["value"]), value.problems
            changed[path] = said
        except PolicyError as error:
            wrong = error.problems
        except IndexError:
            wrong = [Problem("there is no such item in the list")]
        except TypeError as error:
            hint = "an item of it has a number, from 0: restore.first_of[1].path=zoo/ckpt-1"
            wrong = [Problem(f"`{error}` is a key, but it stands in a list", hint=hint)]
        problems += [Problem(f"{said}: {each.message}", hint=each.hint) for each in wrong]
    if not changes:
        return document
    values, keys = (
        {path: mark for path, mark in marks.items() if path not in changed}
        for marks in (document.values, document.keys)
    )
    return dataclasses.replace(
        document, data=data, values=values, keys=keys, problems=tuple(problems), changed=changed
    )


def _put(data: Any, path: Path, value: Any) -> Any:
    if not path:
        return value
    key, *below = path
    if isinstance(data, list) and isinstance(key, str) and key.isdecimal():  # first_of.1.path
        key = int(key)
    if isinstance(data, list) and isinstance(key, str):
        raise TypeError(key)
    if isinstance(key, int):
        if not isinstance(data, list) or key >= len(data):
            raise IndexError
        return [*data[:key], _put(data[key], (*below,), value), *data[key + 1 :]]
    held = data if isinstance(data, dict) else {}
    return {**held, key: _put(held.get(key), (*below,), value)}


# Policies that extend one another


def _extended(document: Document) -> Document:
    """The document, in which each policy has the keys of those that it extends.

    >>> text = b"policies: {a: {match: name, include: [x]}, b: {extends: a, include: [y]}}"
    >>> _extended(parse(text, "a.yaml")).data["policies"]["b"]
    {'match': 'name', 'include': ['y'], 'extends': 'a'}
    """
    declared = document.data.get("policies")
    known = {**_BUILT_IN, **(declared if isinstance(declared, dict) else {})}
    problems, found = list(document.problems), _Keys()
    for path, policy in _policies(document.data, ()):
        if _EXTENDS in policy:
            names, problem = _bases(str(path[1]) if path[0] == "policies" else "", policy, known)
            if problem is not None:
                at = document.values.get((*path, _EXTENDS), (0, 0))
                message = f"{show_path((*path, _EXTENDS))}: {problem.message}"
                problems.append(Problem(message, *at, problem.hint))
            found[path] = {
                key: ("policies", name) for name in reversed(names) for key in known[name]
            } | dict.fromkeys(policy, path)
    if not found:
        return document
    return dataclasses.replace(
        document,
        data=_replaced(document.data, (), found, known),
        values=document.values | _moved(document.values, found),
        keys=document.keys | _moved(document.keys, found),
        problems=tuple(problems),
    )


def _policies(value: Any, path: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    """The mappings that are policies, under ``policies`` and as a ``policy`` of a source."""
    below = [*value.items()] if isinstance(value, dict) else []
    if isinstance(value, list):
        below = [*enumerate(value)]
    for key, each in below:
        if isinstance(each, dict) and (path == ("policies",) or key == "policy"):
            yield (*path, key), each
        elif path[:1] in ((), ("restore",)):
            yield from _policies(each, (*path, key))


def _bases(
    own: str, policy: dict[str, Any], known: dict[str, Any]
) -> tuple[list[str], Problem | None]:
    """Of the policies that one extends, the nearest first; and what is wrong with its own key.

    What is wrong with the key of another one is a problem of that one; a circle, of its first one.
    """
    names: list[str] = []
    while (name := policy.get(_EXTENDS)) is not None:
        if name == own:
            circle = Problem(f"it extends itself: {' → '.join([own, *names, own])}")
            return names, circle if own <= min(names, default=own) else None
        if name in names:
            return names, None
        if len(names) == _MOST_EXTENDED:
            return names, Problem(f"more than {_MOST_EXTENDED} policies extend one another")
        if isinstance(name, str) and name not in known:
            problem = Problem(f"there is no policy `{name}`", hint=did_you_mean(name, known))
            return names, None if names else problem
        if not isinstance(name, str) or not isinstance(known[name], dict):
            return names, None
        names.append(name)
        policy = known[name]
    return names, None


def _replaced(value: Any, path: Path, found: _Keys, known: dict[str, Any]) -> Any:
    """Data in which each policy that extends others has all of their keys."""
    if path in found:
        return {
            key: (value if at == path else known[str(at[1])])[key]
            for key, at in found[path].items()
        }
    if isinstance(value, list):
        return [_replaced(each, (*path, at), found, known) for at, each in enumerate(value)]
    if isinstance(value, dict):
        return {key: _replaced(each, (*path, key), found, known) for key, each in value.items()}
    return value


def _moved(positions: dict[Path, Mark], found: _Keys) -> dict[Path, Mark]:
    """Where the keys of other policies stand, under the path of the one that extends them."""
    of_key: dict[Path, list[tuple[Path, Mark]]] = defaultdict(list)
    for path, mark in positions.items():
        of_key[path[:3]].append((path[3:], mark))
    return {
        (*path, key, *below): mark
        for path, keys in found.items()
        for key, at in keys.items()
        if at != path
        for below, mark in of_key[(*at, key)]
    }
