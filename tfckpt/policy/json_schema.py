"""The JSON Schema of a config, for editors that complete and check YAML as it is written.

Generated from the models; ``schema.json`` beside this file is the copy that editors read. It checks
keys, types and allowed words. The rest, such as selectors and keys that contradict each other, is
checked when the config is loaded.
"""

from __future__ import annotations

import itertools
from typing import Any

from tfckpt.policy.config import Config


def schema() -> dict[str, Any]:
    """The schema, draft 2020-12.

    >>> schema()["$schema"]
    'https://json-schema.org/draft/2020-12/schema'

    """
    generated = Config.model_json_schema()
    kinds = generated["$defs"]
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


def _one_of(kind: dict[str, Any], *groups: list[str]) -> None:
    """Require exactly one of these groups of keys, each with a value."""
    keys = kind["properties"]
    for key in itertools.chain(*groups):
        keys[key] = {"description": keys[key]["description"], **keys[key]["anyOf"][0]}
    kind["oneOf"] = [{"required": group} for group in groups]
