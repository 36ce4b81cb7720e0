"""The JSON Schema of a config, for editors that complete and check YAML as it is written.

Generated from the models; ``schema.json`` beside this file is the copy that editors read. It checks
keys, types and allowed words. The rest, such as selectors and keys that contradict each other, is
checked when the config is loaded.
"""

from __future__ import annotations

import ast
import inspect
import itertools
import textwrap
from typing import TYPE_CHECKING, Any

from tfckpt.policy.base.fields import Model
from tfckpt.policy.config import Config

if TYPE_CHECKING:
    from collections.abc import Iterator


def schema() -> dict[str, Any]:
    """The schema, draft 2020-12.

    >>> schema()["$schema"]
    'https://json-schema.org/draft/2020-12/schema'

    """
    generated = Config.model_json_schema()
    kinds = generated["$defs"]
    for model in _models(Model):
        kind = generated if model is Config else kinds.get(model.__name__)
        if kind is not None:
            _describe(kind["properties"], model)
    for kind in kinds.values():
        kind["description"] = kind["description"].partition("\n\n")[0]
    source, restore, keep = kinds["Source"], kinds["Restore"], kinds["Keep"]
    _one_of(source, ["path"], ["directory"], ["average"], ["all_of"])
    _one_of(
        keep,
        ["latest"],
        ["best", "monitor", "mode"],
        ["every_n_steps"],
        ["every_n_hours"],
        ["pin"],
    )
    keep["dependentRequired"] = {"monitor": ["best"], "mode": ["best"]}
    if_none = restore["properties"]["if_none"]
    alone = {**source, "properties": {**source["properties"], "if_none": if_none}}
    kinds["Restore"] = {"anyOf": [restore, alone]}
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **generated}


def _models(base: type[Model]) -> Iterator[type[Model]]:
    for model in base.__subclasses__():
        yield model
        yield from _models(model)


def _describe(properties: dict[str, Any], model: type[Model]) -> None:
    """Describe each key by the docstring below its field.

    Pydantic's ``use_attribute_docstrings`` reads the source of every model when it is imported,
    which takes as long as everything else that is imported with a config.
    """
    texts: dict[str, str] = {}
    for base in reversed(model.__mro__[: model.__mro__.index(Model)]):
        (found,) = ast.parse(textwrap.dedent(inspect.getsource(base))).body
        body = found.body if isinstance(found, ast.ClassDef) else []
        for pair in itertools.pairwise(body):
            match pair:
                case ast.AnnAssign(ast.Name(name)), ast.Expr(ast.Constant(str(text))):
                    texts[name] = inspect.cleandoc(text)
    for name, field in model.model_fields.items():
        key = field.validation_alias if isinstance(field.validation_alias, str) else name
        if key in properties and name in texts:
            described = {**properties[key], "description": texts[name]}
            properties[key] = {word: described[word] for word in sorted(described)}


def _one_of(kind: dict[str, Any], *groups: list[str]) -> None:
    """Require exactly one of these groups of keys, each with a value."""
    keys = kind["properties"]
    for key in itertools.chain(*groups):
        keys[key] = {"description": keys[key]["description"], **keys[key]["anyOf"][0]}
    kind["oneOf"] = [{"required": group} for group in groups]
