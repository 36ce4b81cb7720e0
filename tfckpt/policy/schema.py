"""The JSON Schema of a config, for editors that complete and check YAML as it is written.

Generated from the models, so that it cannot say anything else; ``configs/schema.json`` is the copy
that editors read. It knows keys, types and words. What takes more, such as selectors and keys that
contradict each other, is found when the config is loaded.
"""

from __future__ import annotations

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
    source, restore = kinds["Source"], kinds["Restore"]
    for place in ("path", "directory"):
        source["properties"][place] = source["properties"][place]["anyOf"][0]
    source["oneOf"] = [{"required": ["path"]}, {"required": ["directory"]}]
    if_none = restore["properties"]["if_none"]
    alone = {**source, "properties": {**source["properties"], "if_none": if_none}}
    kinds["Restore"] = {"anyOf": [restore, alone]}
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **generated}
