"""What a configuration that Keras wrote has under a key, where it is of the kind it should be.

Anybody may have edited it: what is of another kind is as good as not there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


def mapping(config: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """A part of it; empty where there is none."""
    found = config.get(key)
    return found if isinstance(found, dict) else {}


def text(config: Mapping[str, Any], key: str) -> str:
    """A text in it; ``""`` where there is none."""
    found = config.get(key)
    return found if isinstance(found, str) else ""
