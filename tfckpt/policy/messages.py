"""pydantic's errors in the terms of a config file.

pydantic reports inputs, literals and tuples; the author of a config wrote lists, words and
mappings. Every error becomes a :class:`ConfigFault`: the path of keys to it, the value there, and
what was expected. A misspelled key gets a suggestion from its own mapping.
"""

from __future__ import annotations

import functools
import json
import re
from typing import TYPE_CHECKING, Any, NamedTuple, get_args, get_origin

from pydantic import BaseModel, Tag
from pydantic.json_schema import SkipJsonSchema

from tfckpt.core.similar import LIKE, begun, did_you_mean, near_words
from tfckpt.errors import Problem
from tfckpt.policy import words

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from pydantic import ValidationError
    from pydantic.fields import FieldInfo

    from tfckpt.policy.words import SectionKeys

Path = tuple[str | int, ...]

ABOVE = ".."
"""As ``at`` of a fault: the error is about the mapping that contains the value."""

TAG = "\0"
"""First character of union tags, which pydantic puts into its paths; no YAML text has a NUL."""

_PLAIN = re.compile("(?!(null|true|false|yes|no|on|off)$)[a-z][a-z_]*")  # text without quotes
_NUMBERED = re.compile(r"-\d+$")  # a checkpoint in a directory
_NOTHING = re.compile(r"(?!)")
_SHORT = 4
_SHOWN = 80  # characters of a value
_PERCENT = 100
_EXPECTED = {
    "int_type": "a whole number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "string_type": "text",
    "bool_type": "true or false",
    "tuple_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "invalid_key": "text as a key",
    "greater_than": "more than {gt:g}",
    "greater_than_equal": "at least {ge:g}",
    "less_than_equal": "at most {le:g}",
    "literal_error": "{expected}",
    "string_too_short": "some text",
    "too_short": "a list of at least {min_length}",
    "too_long": "a list of at most {max_length}",
}


class ConfigFault(NamedTuple):
    """One error: the path of keys to it, the value there, and a sibling key that it mentions.

    ``about_key`` is True if the key is wrong rather than its value.
    """

    path: Path
    value: Any
    problem: Problem
    other: str = ""
    about_key: bool = False

    def show(self) -> Problem:
        """The problem with its path."""
        where = f"{show_path(self.path)}: " if self.path else ""
        return self.problem._replace(message=where + self.problem.message)


def show_path(path: Path) -> str:
    """``restore.first_of[0].path``.

    >>> show_path(("restore", "first_of", 0, "path"))
    'restore.first_of[0].path'
    """
    return "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in path).removeprefix(".")


def show_value(value: Any) -> str:
    """A value in the terms of a config file.

    >>> show_value("3"), show_value(None), show_value(True), show_value([1])
    ("the text '3'", 'nothing', 'true', 'a list')
    """
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return f"the text {short(value)!r}"
    if isinstance(value, dict | list | tuple):
        kind = "mapping" if isinstance(value, dict) else "list"
        return f"a {kind}" if value else f"an empty {kind}"
    return f"the number {value}" if isinstance(value, int | float) else f"{short(repr(value))}"


def problems_of(error: ValidationError, model: type[BaseModel]) -> Iterator[ConfigFault]:
    """Every error that pydantic found in a value of ``model``."""
    for detail in error.errors(include_url=False):
        kind, value, loc = detail["type"], detail["input"], detail["loc"]
        path = tuple(part for part in loc if not str(part).startswith(TAG))
        context = detail.get("ctx", {})
        above = _model_at(model, loc[:-1])
        if kind == "default_factory_not_called" or (
            kind == "too_short" and context["actual_length"] < len(value)
        ):
            continue  # both only follow from an error in another value
        if kind == "fault":
            at = context["at"].removeprefix(ABOVE)
            path = path[:-1] if at != context["at"] else path
            path = (*path, at) if at else path
            problem = Problem(detail["msg"], hint=context["hint"])
            yield ConfigFault(path, value, problem, context["other"], about_key=bool(at))
        elif kind == "extra_forbidden":
            key = str(loc[-1])
            hint = _instead(key, value, above, model)
            yield ConfigFault(path, value, Problem("unknown key", hint=hint), about_key=True)
        elif kind == "missing":
            hint = "add `version: 1` as the first line" if path == ("version",) else ""
            yield ConfigFault(path, value, Problem("the key is missing", hint=hint))
        else:
            template = _EXPECTED.get(kind)
            expected = template.format(**context) if template else detail["msg"]
            inner = _model_at(model, loc)
            holds = inner if kind == "model_type" or inner is not above else None
            hint = _how_to_write(kind, expected, value, holds)
            problem = Problem(f"expected {expected}, found {show_value(value)}", hint=hint)
            yield ConfigFault(path, value, problem)


def meanings(
    word: str, value: Any, root: type[BaseModel], own: Collection[str], likeness: float = LIKE
) -> tuple[str, list[SectionKeys]]:
    """What a word means that is no key where it stands: as a word of others, or as a key elsewhere.

    Returns:
        The word that it is, or may be a misspelling of, "" for none; and its meanings, none for one
        of the ``own`` words, which may stand there.

    >>> from tfckpt.policy import Config
    >>> meanings("max_to_kep", 3, Config, ["save"])
    ('max_to_keep', [SectionKeys(section='manager', keys={'max_to_keep': 3})])
    """
    if found := _meanings(word, value, root):
        return word, found
    elsewhere = {name for model in _sections(root) for name in keys_of(model)} | words.OF_OTHERS
    long = {name for name in elsewhere if len(name) > _SHORT}  # `model` is none of `mode`
    near = next(iter(near_words(word, {*own, *long}, 1, likeness)), "")
    return near, _meanings(near, value, root) if near not in own else []


def _meanings(word: str, value: Any, root: type[BaseModel]) -> list[SectionKeys]:
    if of_others := words.meaning(word, value):
        return [of_others]
    found = (_section(model) for model in _sections(root) if word in keys_of(model))
    return [words.SectionKeys(each, {word: value}) for each in dict.fromkeys(found)]


def _instead(key: str, value: Any, above: type[BaseModel], root: type[BaseModel]) -> str:
    """What to write in place of an unknown key of the mapping ``above``."""
    own = keys_of(above)
    if key in words.SAYS or begun(key, own):
        return words.SAYS.get(key) or did_you_mean(key, own)
    near, found = meanings(key, value, root, own)
    if not found:
        return did_you_mean(key, own)
    asked = f"did you mean `{near}`? " if near != key else ""
    written = [_written(each, above) for each in found if each.keys]
    return asked + (f"write {' or '.join(written)}" if written else words.DEFAULT)


def _written(meaning: SectionKeys, above: type[BaseModel]) -> str:
    """The keys of a meaning, and where they stand, for who writes into the mapping ``above``."""
    text = as_yaml(meaning.keys)
    if meaning.section == _section(above):
        return f"`{text}`"
    for key, field in above.model_fields.items():
        below = _models_in(field.annotation) if get_origin(field.annotation) is not dict else ()
        if any(_section(model) == meaning.section for _, model in below):
            return f"`{key}: {{{text}}}`"
    places = {"config": "at the top level", "policy": "into a policy"}
    return f"`{text}` {places.get(meaning.section, f'into `{meaning.section}`')}"


def _section(model: type[BaseModel]) -> str:
    return str(getattr(model, "section", ""))


def _how_to_write(kind: str, expected: str, value: Any, model: type[BaseModel] | None) -> str:
    """A hint for a value of the wrong type; ``model`` is that of the expected mappings, if any."""
    if not isinstance(value, dict | list) and (hint := _how_to_write_one(kind, expected, value)):
        return hint
    if kind == "model_type" and model and (form := _form(model, value)):
        return f"write it as {form}"
    if kind == "tuple_type" and model and not isinstance(value, dict):
        keys = ", ".join(f"`{key}`" for key in sorted(keys_of(model)))
        return f"write a list of mappings with the keys {keys}"
    if kind == "tuple_type" and value and isinstance(value, str | int | float | dict):
        unlike = model and isinstance(value, dict) and not {*value} & {*keys_of(model)}
        return f"write a list: {f'[{_form(model, value)}]' if model and unlike else _flow([value])}"
    return ""


def _how_to_write_one(kind: str, expected: str, value: Any) -> str:
    if kind == "string_type" and isinstance(value, bool | int | float):
        return "write text that looks like a number or boolean in quotes"
    if kind == "int_type" and (number := _whole(value)):
        return f"write {number}"
    if kind == "less_than_equal" and expected == "at most 1" and value <= _PERCENT:
        return f"it is a fraction: {value / _PERCENT:g} for {value:g} %"
    if kind == "literal_error" and isinstance(value, str):
        words = [word.strip("'") for word in expected.replace(" or ", ", ").split(", ")]
        near = near_words(value, words)
        where = "variables are filled in only in paths, names and other text of your own"
        return where if "${" in value else f"did you mean `{near[0]}`?" if near else ""
    return ""


def _whole(value: Any) -> str:
    """The whole number that a text or a float is, "" for none."""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return value if isinstance(value, str) and value.isdecimal() else ""


def _form(model: type[BaseModel], value: Any) -> str:
    """How to write a mapping for the model, "" if none of its keys is required."""
    keys = [_key(name, f) for name, f in model.model_fields.items() if f.is_required()]
    if not keys and "directory" in model.model_fields:  # the usual sources
        keys = ["path" if _NUMBERED.search(str(value)) else "directory"]
    values = [short(value) if isinstance(value, str) else _flow(value)]
    if isinstance(value, dict) and len(value) == 1:  # {old: new}
        values = [str(each) for each in next(iter(value.items()))]
    if len(values) != len(keys) or isinstance(value, bool | int | float | None):
        values = ["…"] * len(keys)
    shown = (f"{key}: {text}" for key, text in zip(keys, values, strict=True))
    return f"{{{', '.join(shown)}}}" if keys else ""


def as_yaml(keys: Mapping[str, Any]) -> str:
    """Keys and values of a mapping, on one line; a long value is left out.

    >>> as_yaml({"keep": [{"best": 2, "mode": "min"}], "include": ["model/**"]})
    "keep: [{best: 2, mode: min}], include: ['model/**']"
    """
    shown = ((key, _flow(value, plain=_PLAIN)) for key, value in keys.items())
    return ", ".join(f"{key}: {text if len(text) <= _SHOWN else '…'}" for key, text in shown)


def _flow(value: Any, plain: re.Pattern[str] = _NOTHING) -> str:
    """A value as YAML on one line; what ``plain`` matches is not quoted.

    >>> _flow([{"best": 2, "mode": "min"}]), _flow(["model/**"])
    ("[{best: 2, mode: 'min'}]", "['model/**']")
    """
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key}: {_flow(each, plain)}' for key, each in value.items())}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(_flow(each, plain) for each in value)}]"
    if isinstance(value, str):
        return value if plain.fullmatch(value) else repr(short(value))
    return json.dumps(value, default=repr)


@functools.cache
def keys_of(model: type[BaseModel]) -> tuple[str, ...]:
    """The keys that a file may set in a model."""
    skip: Any = SkipJsonSchema
    fields = model.model_fields.items()
    return tuple(_key(n, f) for n, f in fields if not any(isinstance(m, skip) for m in f.metadata))


def _key(name: str, field: FieldInfo) -> str:
    return field.validation_alias if isinstance(field.validation_alias, str) else name


@functools.cache
def _sections(root: type[BaseModel]) -> list[Any]:
    """The models of all sections of a config."""
    found = {root: None}
    for model in (queue := [root]):
        fields = model.model_fields.values()
        below = [each for field in fields for _, each in _models_in(field.annotation)]
        queue += [each for each in dict.fromkeys(below) if each not in found]
        found |= dict.fromkeys(below)
    return [*filter(_section, found)]


def _model_at(model: type[BaseModel], path: Path) -> type[BaseModel]:
    """The model at a path; in a union the path has a tag."""
    parts, kinds = iter(path), dict[str, type[BaseModel]]()
    for part in parts:
        model = kinds.get(str(part), model)
        fields = ((part in {n, f.validation_alias}, f) for n, f in model.model_fields.items())
        annotation = next((field.annotation for same, field in fields if same), None)
        if annotation is not None:
            kinds = dict(_models_in(annotation))
            model = next(iter(kinds.values()), model)
        if get_origin(annotation) is dict:
            next(parts, None)
    return model


def _models_in(annotation: Any, tag: str = "") -> Iterator[tuple[str, type[BaseModel]]]:
    """The models that a field may hold, each with its tag, "" if it has none."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield tag, annotation
    inner = get_args(annotation)
    own = next((each.tag for each in inner if isinstance(each, Tag)), tag)
    for each in inner:
        yield from _models_in(each, own)


def short(text: str) -> str:
    """The text, truncated to 60 characters."""
    return text if len(text) <= 60 else f"{text[:57]}..."
