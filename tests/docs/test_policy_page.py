"""docs/policy.md and adapt.md against the models: every key, its values, its default; presets."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tfckpt.errors import PolicyError
from tfckpt.policy import Policy

PROJECT = Path(__file__).resolve().parents[2]
SCHEMA = json.loads((PROJECT / "tfckpt" / "policy" / "schema.json").read_text(encoding="utf-8"))
PAGE, ADAPT = (
    (PROJECT / "docs" / name).read_text(encoding="utf-8") for name in ("policy.md", "adapt.md")
)
HEADINGS = {
    "Config": "The file",
    "Manager": "manager",
    "Save": "manager.save",
    "Keep": "manager.keep",
    "Export": "manager.export",
    "Restore": "restore",
    "Source": "a source",
    "Policy": "a policy",
    "Rename": "rename",
    "OptimizerRules": "optimizer",
    "InputSpec": "build",
}
SAID_ONCE = "Selector over model names."  # above the tables of rules for one value
ADAPTATIONS = [name for name, kind in SCHEMA["$defs"].items() if "how" in kind["properties"]]


def table(title: str, page: str = PAGE) -> list[list[str]]:
    """The rows of the table under a heading, without its head."""
    (section,) = re.findall(rf"^#+ {title}\n(.*?)(?=^#|\Z)", page, re.MULTILINE | re.DOTALL)
    rows = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("|")]
    return rows[2:]


def values(key: dict[str, Any]) -> str:
    """What may stand behind a key, in the words of the page."""
    if "enum" in key:
        return ", ".join(f"`{word}`" for word in key["enum"])
    if "const" in key:
        return f"`{key['const']}`"
    if "$ref" in key or key.get("type") == "object":
        return "mapping"
    either = key.get("anyOf", key.get("oneOf", []))
    if "if" in key:
        either = [key["then"], key["else"]]
    kinds = [kind for kind in either if kind != {"type": "null"}]
    if kinds:
        several = (each for kind in kinds for each in values(kind).split(" or "))
        return " or ".join(dict.fromkeys(several))
    if key["type"] == "array":
        return f"list of {values(key['items'])}"
    if "maximum" in key:
        return f"{key['minimum']} to {key['maximum']}"
    plain = {"boolean": "`true`, `false`", "string": "text"}
    return plain.get(key["type"], "number")


def default(name: str, key: dict[str, Any], required: bool) -> str:
    if required:
        return "required"
    if name in {"on_missing", "on_unexpected"}:
        return "by `assert`"
    value = key.get("default")
    if value in (None, [], {}) or isinstance(value, dict):
        return "–"
    return f"`{value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}`"


@pytest.mark.parametrize("name", [*HEADINGS, *ADAPTATIONS])
def test_every_key_stands_in_its_table(name: str) -> None:
    model = SCHEMA if name == "Config" else SCHEMA["$defs"][name]
    expected = [
        [f"`{word}`", values(key), default(word, key, word in model.get("required", ()))]
        for word, key in model["properties"].items()
        if name not in ADAPTATIONS or not (word == "how" or key.get("description") == SAID_ONCE)
    ]
    rows = table(HEADINGS[name]) if name in HEADINGS else table(name.lower(), ADAPT)
    assert [row[:3] for row in rows] == expected


def test_each_preset_means_what_the_page_says() -> None:
    (presets, *_) = SCHEMA["$defs"]["Policy"]["properties"]["assert"]["anyOf"]
    shown = table("Presets")
    assert [row[0] for row in shown] == ["–", *(f"`{word}`" for word in presets["enum"])]
    for preset, missing, unexpected, with_partial in shown:
        given: dict[str, Any] = {} if preset == "–" else {"assert_": preset.strip("`")}
        assert means(Policy(**given)) == f"{missing}, {unexpected}"
        if with_partial == "refused":
            with pytest.raises(PolicyError, match="contradicts"):
                Policy(**given, expect_partial=True)
        else:
            assert means(Policy(**given, expect_partial=True)) == with_partial


def means(policy: Policy) -> str:
    return f"`{policy.on_missing}`, `{policy.on_unexpected}`"
