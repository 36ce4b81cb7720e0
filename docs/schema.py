"""Prints the JSON Schema of configs: ``python -m docs.schema > tfckpt/policy/schema.json``.

Pydantic writes it from the models and the docstrings below their keys. It reads these when a model
is made, which takes as long as all else that is imported with a config; so the package holds what
this prints. The schema checks keys, types and allowed words. The rest, such as selectors and keys
that contradict each other, is checked when a config is loaded.
"""

from __future__ import annotations

import itertools
import json
from typing import Any

import pydantic


def schema() -> dict[str, Any]:
    """The schema, draft 2020-12."""
    pydantic.BaseModel.model_config["use_attribute_docstrings"] = True
    from tfckpt.policy.config import Config

    generated = Config.model_json_schema()
    kinds = generated["$defs"]
    for kind in kinds.values():
        kind["description"] = kind["description"].partition("\n\n")[0]
    keep = kinds["Keep"]
    _one_of(keep, ["latest"], ["best", "monitor"], ["every_n_steps"], ["every_n_hours"], ["pin"])
    keep["properties"]["mode"] = _without_null(keep["properties"]["mode"])
    keep["dependentRequired"] = {"monitor": ["best"], "mode": ["best"]}
    for name in ("Source", "OnlySource"):
        _one_of(kinds[name], ["path"], ["directory"], ["all_of"])
    inputs = kinds["Policy"]["properties"]["build"]["anyOf"][0]
    one, several, named = inputs["additionalProperties"]["oneOf"]
    has_shape = {"required": ["shape"], "properties": {"shape": {"type": "array"}}}
    inputs["additionalProperties"] = {
        "if": {"type": "array"},
        "then": several,
        "else": {"if": {"type": "object", **has_shape}, "then": one, "else": named},
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "tfckpt-config.schema.json",
        **_decided(generated, kinds),
    }


def _decided(node: Any, kinds: dict[str, Any]) -> Any:
    """The same, where what is written decides which mapping it is: so an editor names a wrong key.

    Of several that are all wrong, an editor can only say that none fits.
    """
    if isinstance(node, list):
        return [_decided(each, kinds) for each in node]
    if not isinstance(node, dict):
        return node
    node = {key: _decided(each, kinds) for key, each in node.items()}
    word = next((each for each in ("anyOf", "oneOf") if each in node), "")
    several = node.get(word, [])
    mappings = [each for each in several if "$ref" in each or "if" in each]
    others = [each for each in several if each not in mappings]
    if not mappings or any(each.get("type") in ("object", "array") for each in others):
        return node
    del node[word]
    node.pop("discriminator", None)
    words = [kinds[_kind(each)]["properties"].get("how", {}).get("const") for each in mappings]
    if all(words):
        others = [{"properties": {"how": {"enum": words}}, "required": ["how"], "type": "object"}]
    result = others[0] if len(others) == 1 else {"anyOf": others}
    for each in reversed(mappings):
        if "if" in each:
            result = _or_else(each, result)
        else:
            result = {"if": _when(kinds[_kind(each)]), "then": each, "else": result}
    return {**node, **result}


def _kind(reference: dict[str, Any]) -> str:
    while "if" in reference:
        reference = reference["then"]
    return str(reference["$ref"].rpartition("/")[2])


def _or_else(node: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """What else may stand there, in the last place of a chain."""
    if "if" in node:
        return {**node, "else": _or_else(node["else"], other)}
    return {"anyOf": [*node.get("anyOf", [node]), *other.get("anyOf", [other])]}


def _when(kind: dict[str, Any]) -> dict[str, Any]:
    """How to know that a mapping is of this kind."""
    keys = kind["properties"]
    if "how" in keys and "const" in keys["how"]:
        how = {"properties": {"how": {"const": keys["how"]["const"]}}, "required": ["how"]}
        return {"type": "object", **how}
    return {"type": "object", **({"required": ["first_of"]} if "first_of" in keys else {})}


def _one_of(kind: dict[str, Any], *groups: list[str]) -> None:
    """Require exactly one of these groups of keys, each with a value."""
    keys = kind["properties"]
    for key in itertools.chain(*groups):
        keys[key] = _without_null(keys[key])
    kind["oneOf"] = [{"required": group} for group in groups]


def _without_null(key: dict[str, Any]) -> dict[str, Any]:
    return {"description": key["description"], **key["anyOf"][0]}


if __name__ == "__main__":
    print(json.dumps(schema(), indent=2))
