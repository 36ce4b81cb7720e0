"""docs/memory.md against the limit that it names."""

from __future__ import annotations

import re
from pathlib import Path

from tfckpt.live.restoring.apply import UNDO_BYTES
from tfckpt.live.restoring.incoming import KEPT_BYTES

PAGE = Path(__file__).resolve().parents[2] / "docs" / "memory.md"


def test_the_limit_is_the_one_that_the_page_names() -> None:
    limits = re.findall(r"(?:the first|those) (\d+) MiB", PAGE.read_text(encoding="utf-8"))
    assert set(limits) == {str(UNDO_BYTES >> 20)}
    (kept,) = re.findall(r"is (\d+) MiB, or", PAGE.read_text(encoding="utf-8"))
    assert int(kept) == KEPT_BYTES >> 20
