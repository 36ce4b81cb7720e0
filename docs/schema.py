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
    _one_of(
        keep, ["latest"], ["best", "monitor"], ["every_n_steps"], ["every_n_hours"], ["pin"]
    )
    keep["properties"]["mode"] = _without_null(keep["properties"]["mode"])
    keep["dependentRequired"] = {"monitor": ["best"], "mode": ["best"]}
    for name in ("Source", "OnlySource"):
        _one_of(kinds[name], ["path"], ["directory"], ["all_of"])
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **generated}


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
