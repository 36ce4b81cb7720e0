"""The page for a JSON document of `list`, `inspect`, `diff`, `plan` or a restore.

A document may come from an untrusted file: a missing field or a value of the wrong type is an
error.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfckpt.errors import UnsupportedCheckpointError
from tfckpt.pages.checkpoint_page import checkpoint_page
from tfckpt.pages.difference_page import difference_page
from tfckpt.pages.plan_page import plan_page
from tfckpt.pages.run_page import run_page

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tfckpt.pages.shell import Page

_MAX_BYTES = 1 << 28
_KNOWN = {"steps", "plan", "differences", "values", "checkpoints"}


def page_of(document: Mapping[str, Any]) -> Page:
    """The page for a document.

    Raises:
        KeyError, TypeError, ValueError: the document is of no known kind, or not valid.
    """
    if "checkpoints" in document:
        return run_page(document)
    if "steps" in document:
        return plan_page(document)
    if "plan" in document:
        return plan_page(document["plan"])
    if "differences" in document:
        return difference_page(document)
    return checkpoint_page(document)


def page_of_file(path: str) -> Page | None:
    """The page for a file with a JSON document; None if the path is of something else.

    Raises:
        UnsupportedCheckpointError: it is JSON, but no document.
    """
    if (document := _loaded(path)) is None:
        return None
    try:
        return page_of(document)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        message = f"is not a JSON document of list, inspect, diff, plan or a restore: {error!r}"
        raise UnsupportedCheckpointError(message, path=path) from None


def _loaded(path: str) -> dict[str, Any] | None:
    file = Path(path)
    if file.suffix != ".json" or not file.is_file():
        return None
    if file.stat().st_size > _MAX_BYTES:
        raise UnsupportedCheckpointError(
            f"is larger than {_MAX_BYTES >> 20} MiB, too large for a JSON document", path=path
        )
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise UnsupportedCheckpointError(f"is not valid JSON: {error}", path=path) from None
    known = isinstance(document, dict) and not _KNOWN.isdisjoint(document)
    return document if known else None  # a checkpoint's `.weights.json` index is JSON, too
