"""`tfckpt report`: write an HTML page about a checkpoint, a diff, a plan or a restore."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfckpt.cli.arguments.command import UsageError
from tfckpt.cli.output.html_content import content
from tfckpt.cli.output.html_page import render
from tfckpt.cli.output.passed_over import print_rejected
from tfckpt.cli.output.progress import progress
from tfckpt.core.text import printable
from tfckpt.errors import UnsupportedCheckpointError
from tfckpt.stored.io.new_file import new_file, refuse_existing
from tfckpt.tools.comparison import diff
from tfckpt.tools.inspection import inspect

if TYPE_CHECKING:
    from tfckpt.cli.arguments.command import Arguments

_MAX_BYTES = 1 << 28
_KNOWN = {"steps", "plan", "differences", "values"}


def run(arguments: Arguments) -> int:
    """Write the page."""
    if (target := arguments.text("html")) is None:
        raise UsageError("report needs --html FILE, the file to write")
    if not 1 <= len(arguments.positional) <= 2:
        raise UsageError("expected a checkpoint, a JSON document, or two checkpoints to compare")
    refuse_existing(target)
    page = _page(arguments).encode()
    with new_file(target) as output:
        output.write(page)
    print(f"{printable(target)}: written")
    return 0


def _page(arguments: Arguments) -> str:
    path, *others = arguments.positional
    values = arguments.switch("values")
    if others:
        compared = diff(path, others[0], values=values, progress=progress)
        print_rejected(compared.rejected, compared.a, compared.b)
        return render(content(compared.to_json()))
    if (document := _loaded(path)) is not None:
        try:
            return render(content(document))
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            message = f"is not a JSON document of inspect, diff, plan or a restore: {error!r}"
            raise UnsupportedCheckpointError(message, path=path) from None
    inspection = inspect(path, values=values, progress=progress)
    print_rejected(inspection.rejected, inspection.path)
    return render(content(inspection.to_json()))


def _loaded(path: str) -> dict[str, Any] | None:
    """The JSON document in a file; None if the path is of something else."""
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
