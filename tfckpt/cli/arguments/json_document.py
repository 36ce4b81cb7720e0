"""``--json``: print one document that every JSON parser accepts."""

from __future__ import annotations

import json
import math
from typing import Any


def show_json(document: dict[str, Any]) -> None:
    """Print a document; NaN and infinities, which JSON cannot express, become null."""
    print(json.dumps(_plain(document), indent=2))


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
