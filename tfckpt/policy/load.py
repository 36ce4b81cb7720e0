"""Loads a config from a file or mapping, and reports all its errors at once.

Errors in the YAML, in its ``${VAR}`` and in its values are collected over the whole file, each with
line and column; a mapping made in Python has paths of keys instead. A config from a file remembers
the line of each rule of its policies, so that later messages about a rule can name it.

``${VAR}`` and ``${VAR:-default}`` are expanded after parsing, so that a variable cannot change the
structure of the file; once, so that a variable's value is never expanded itself; and not in
selectors, where ``$`` belongs to regular expressions. An empty variable counts as unset, as with
``:-`` in a shell: an empty RUN_DIR would make ``${RUN_DIR}/checkpoints`` a directory of the root.

Refused, besides what the models and the YAML loader refuse: files that cannot be read, a variable
without a value, and a ``$`` that is neither ``${...}`` nor ``$$``. The only exception raised
is :class:`~tfckpt.errors.PolicyError`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import ValidationError

from tfckpt.core.similar import did_you_mean, near_paths, question
from tfckpt.errors import PolicyError, Problem
from tfckpt.policy.base.fields import Model
from tfckpt.policy.base.messages import (
    ConfigFault,
    Path,
    keys_of,
    problems_of,
    show_value,
)
from tfckpt.policy.config import Config
from tfckpt.policy.policy import Policy, RuleLocations
from tfckpt.policy.yaml_loader import BAD, MAX_BYTES, MAX_DEPTH, Document, parse

if TYPE_CHECKING:
    from collections.abc import Iterator

_SELECTORS = (
    "include",
    "exclude",
    "exclude_checkpoint",
    "rename",
    "expect_missing",
    "expect_unexpected",
)
CONFIGS = (".yaml", ".yml", ".json")
"""File name suffixes of configs."""

_MAPPING = "the config mapping"
_PYTHON_ONLY = ("name", "assert_")

_Source = str | os.PathLike[str] | Mapping[str, Any]
_M = TypeVar("_M", bound=Model)


def load_config(source: _Source | Config, env: Mapping[str, str] = os.environ) -> Config:
    """Load a config.

    Args:
        source: a YAML file, a mapping of the same keys, or a config, which is returned unchanged.
        env: values for ``${VAR}``.

    Raises:
        PolicyError: with all errors of the source.

    >>> config = load_config({"version": 1, "restore": {"directory": "${RUNS}/a"}}, {"RUNS": "r"})
    >>> config.restore.first_of[0].directory
    'r/a'

    """
    if isinstance(source, Config):
        return source
    document, file = _read(source)
    config = _validate(Config, document, file, env)
    for path, policy in _policies_of(config):
        _locate_rules(policy, path, document, file)
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
    _locate_rules(policy, (), document, file)
    return policy


def _read(source: object, file: str = _MAPPING) -> tuple[Document, str]:
    if isinstance(source, Mapping):
        values: dict[Path, tuple[int, int]] = {}
        data = _plain(source, (), values, file)
        return Document(data, values, {}, ()), file
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


def _is_config(path: str) -> bool:
    return path.endswith(CONFIGS) and FilePath(path).is_file()


def _plain(value: Any, path: Path, values: dict[Path, tuple[int, int]], file: str) -> Any:
    values[path] = (0, 0)
    if len(path) > MAX_DEPTH:
        raise PolicyError(file, [Problem(f"values are nested more than {MAX_DEPTH} deep")])
    if isinstance(value, Mapping):
        return {key: _plain(inner, (*path, key), values, file) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner, (*path, i), values, file) for i, inner in enumerate(value)]
    return value


def _validate(model: type[_M], document: Document, file: str, env: Mapping[str, str]) -> _M:
    faults: list[ConfigFault] = []
    data = _expanded(document.data, (), env, faults, model is Policy)
    for path, policy in [((), data)] if model is Policy else _policy_mappings(data):
        for key in _PYTHON_ONLY & policy.keys():
            problem = Problem("unknown key", hint=did_you_mean(key, keys_of(Policy)))
            faults.append(ConfigFault((*path, key), policy.pop(key), problem, about_key=True))
    declared = data.get("policies")
    context = {"policies": declared if isinstance(declared, dict) else {}}
    value = None
    try:
        value = model.model_validate(data, context=context)
    except ValidationError as error:
        faults += [fault for fault in problems_of(error, model) if fault.value is not BAD]
    problems = [*document.problems, *(_with_position(fault, document) for fault in faults)]
    if problems or value is None:
        raise PolicyError(file, sorted(problems, key=lambda problem: problem[1:3]))
    return value


def _expanded(
    value: Any, path: Path, env: Mapping[str, str], faults: list[ConfigFault], in_policy: bool
) -> Any:
    if isinstance(value, dict):
        return {k: _expanded(v, (*path, k), env, faults, in_policy) for k, v in value.items()}
    if isinstance(value, list):
        return [_expanded(v, (*path, i), env, faults, in_policy) for i, v in enumerate(value)]
    if not isinstance(value, str) or _is_selector(path, in_policy):
        return value
    try:
        return expand_variables(value, env)
    except ValueError as error:
        faults.append(ConfigFault(path, value, Problem(str(error))))
        return BAD


def _is_selector(path: Path, in_policy: bool) -> bool:
    if not in_policy:
        start = 2 if path[0] == "policies" else 1 + path.index("policy") if "policy" in path else 99
        path = path[start:]
    if path[:1] == ("adapt",):
        return path[2:3] in {("model",), ("checkpoint",)}
    return bool(path) and path[0] in _SELECTORS


def _policy_mappings(data: dict[str, Any]) -> Iterator[tuple[Path, dict[str, Any]]]:
    """The mappings in the data of a config that stand where a policy does."""
    candidates: list[tuple[Path, Any]] = []
    if isinstance(policies := data.get("policies"), dict):
        candidates += [(("policies", name), policy) for name, policy in policies.items()]
    if isinstance(restore := data.get("restore"), dict):
        candidates += (
            ((*path, "policy"), source.get("policy"))
            for path, source in _source_mappings(restore, ("restore",))
        )
    return ((path, policy) for path, policy in candidates if isinstance(policy, dict))


def _source_mappings(above: dict[str, Any], path: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    yield path, above
    for key in ("first_of", "all_of"):
        sources = above.get(key)
        for i, source in enumerate(sources if isinstance(sources, list) else ()):
            if isinstance(source, dict):
                yield from _source_mappings(source, (*path, key, i))


def _policies_of(config: Config) -> Iterator[tuple[Path, Policy]]:
    for name, policy in config.policies.items():
        yield ("policies", name), policy
    for i, source in enumerate(config.restore.first_of if config.restore else ()):
        path: Path = ("restore", "first_of", i)
        if isinstance(source.policy, Policy):
            yield (*path, "policy"), source.policy
        for j, member in enumerate(source.all_of or ()):
            if isinstance(member.policy, Policy):
                yield (*path, "all_of", j, "policy"), member.policy


def _written(path: Path, document: Document) -> Path:
    """The path in the document: a single source may stand directly under ``restore``."""
    if path[:3] == ("restore", "first_of", 0) and path[:2] not in document.values:
        return ("restore", *path[3:])
    return path


def _with_position(fault: ConfigFault, document: Document) -> Problem:
    path = _written(fault.path, document)
    message, _, _, hint = fault._replace(path=path).show()
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


def _locate_rules(policy: Policy, path: Path, document: Document, file: str) -> None:
    if not document.keys:
        return
    path = _written(path, document)
    at = {}
    for field in type(policy).model_fields:
        below = (*path, field.rstrip("_"))
        if below in document.values:
            at[field, 0] = document.values[below]
            count = len(value) if isinstance(value := getattr(policy, field), tuple) else 0
            rules = (((field, i), (*below, i)) for i in range(count))
            at |= {rule: document.values[key] for rule, key in rules if key in document.values}
    policy._locations = RuleLocations(file, at)


_DOLLAR = re.compile(r"\$(?:(\$)|\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}|([A-Za-z0-9_]*))")


def expand_variables(text: str, env: Mapping[str, str]) -> str:
    """The text with its variables expanded.

    Raises:
        ValueError: a variable has no value, or a ``$`` is neither ``${...}`` nor ``$$``.

    >>> expand_variables("${RUN_DIR}/${NAME:-run}, 5 $$", {"RUN_DIR": "/data"})
    '/data/run, 5 $'

    """

    def value(match: re.Match[str]) -> str:
        dollar, name, default, bare = match.groups()
        if dollar:
            return "$"
        if name is None:
            raise ValueError(
                "a single `$` is not valid; write an environment variable as "
                f"`${{{bare or 'NAME'}}}`, or a literal `$` as `$$`"
            )
        expanded = env.get(name) or default
        if expanded is None:
            state = "empty" if name in env else "not set"
            raise ValueError(
                f"the environment variable {name} is {state}; "
                f"set it, or give a default: ${{{name}:-...}}"
            )
        return expanded

    return _DOLLAR.sub(value, text)
