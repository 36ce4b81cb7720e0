"""Real checkpoints that other people wrote, and what TensorFlow reads of them."""

from __future__ import annotations

import hashlib
import json
import os
import struct
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).resolve().parents[2]
CORPUS = Path(os.environ.get("TFCKPT_CORPUS", PROJECT.parent / "shared" / "corpus"))


def _items() -> list[dict[str, Any]]:
    manifest = CORPUS / "MANIFEST.jsonl"
    if not manifest.is_file():
        return []
    return [json.loads(line) for line in manifest.read_text().splitlines()]


ITEMS = {item["id"]: item for item in _items()}


def prefix_of(name: str) -> str:
    return f"{CORPUS / name}/{ITEMS[name]['prefix']}"


def digest(value: Any, dtype: str) -> str:
    if dtype != "string":
        content = value.tobytes()
    elif value.shape == ():
        content = value.item()
    else:
        content = b"".join(struct.pack("<Q", len(one)) + one for one in value.ravel())
    return hashlib.sha256(content).hexdigest()


def expected_of(name: str) -> dict[str, Any]:
    """Key → dtype, shape and checksum, as TensorFlow reads them."""
    return json.loads((CORPUS / "expected" / f"{name}.json").read_text())["tensors"]
