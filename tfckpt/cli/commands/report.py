"""`tfckpt report`: one page of HTML about a checkpoint, a diff, a plan or a restore."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfckpt.cli.arguments.command import UsageError
from tfckpt.cli.arguments.find_checkpoint import find, passed_over
from tfckpt.cli.commands import diff, inspect
from tfckpt.cli.output.html_content import content
from tfckpt.cli.output.html_page import render
from tfckpt.cli.output.views import statistics_document
from tfckpt.core.text import printable
from tfckpt.errors import UnsupportedCheckpointError
from tfckpt.stored.io.new_file import new_file, refuse_existing

if TYPE_CHECKING:
    from tfckpt.cli.arguments.command import Arguments

_MAX_BYTES = 1 << 28
_KNOWN = {"steps", "plan", "differences", "values"}


def run(arguments: Arguments) -> int:
    """Write the page."""
    if (target := arguments.text("html")) is None:
        raise UsageError("--html says which file the page is to be")
    if not 1 <= len(arguments.positional) <= 2:
        raise UsageError(
            "give one path, of a checkpoint or a document, or two checkpoints to compare"
        )
    refuse_existing(target)
    page = _page(arguments).encode()
    with new_file(target) as output:
        output.write(page)
    print(f"{printable(target)}: written")
    return 0


def _page(arguments: Arguments) -> str:
    path, *other = arguments.positional
    values = arguments.switch("values")
    if other:
        return render(content(diff.compared(path, other[0], values=values)))
    if (document := _loaded(path)) is not None:
        try:
            return render(content(document))
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            message = f"is no document of inspect, diff, plan or a restore: {error!r}"
            raise UnsupportedCheckpointError(message, path=path) from None
    found = find(path)
    with found.checkpoint as checkpoint:
        passed_over(found)
        shown = inspect.document(found)
        if values:
            shown["statistics"] = statistics_document(checkpoint)
    return render(content(shown))


def _loaded(path: str) -> dict[str, Any] | None:
    """The document in a file, None where the path is of something else."""
    place = Path(path)
    if place.suffix != ".json" or not place.is_file():
        return None
    if place.stat().st_size > _MAX_BYTES:
        raise UnsupportedCheckpointError("is too large for a document", path=path)
    try:
        document = json.loads(place.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise UnsupportedCheckpointError(f"is no JSON: {error}", path=path) from None
    known = isinstance(document, dict) and not _KNOWN.isdisjoint(document)
    return document if known else None  # the list of a checkpoint's files is JSON, too
