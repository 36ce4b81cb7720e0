"""The schema of configs that editors read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema

PROJECT = Path(__file__).resolve().parents[2]
SCHEMA = PROJECT / "tfckpt" / "policy" / "schema.json"
READ = json.loads(SCHEMA.read_text(encoding="utf-8"))


def accepts(data: Any) -> bool:
    """What an editor says, by the published schema."""
    return bool(jsonschema.Draft202012Validator(READ).is_valid(data))
