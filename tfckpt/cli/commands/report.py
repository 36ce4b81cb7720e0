"""`tfckpt report`: write the HTML page of a run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tfckpt.cli.arguments.command import usage_errors
from tfckpt.cli.commands.listing import keep_rules
from tfckpt.core.text import printable
from tfckpt.pages.report_page import report_page

if TYPE_CHECKING:
    from tfckpt.cli.arguments.command import Arguments


def run(arguments: Arguments) -> int:
    """Write the page, and show it with --open."""
    directory = arguments.single(
        "the directory of a run; `tfckpt diff A B --json` compares checkpoints"
    )
    with usage_errors(arguments):
        written = report_page(
            directory,
            html=arguments.text("html"),
            keep=keep_rules(arguments),
            checkpoint_name=arguments.text("checkpoint_name"),
            force=arguments.switch("force"),
        )
    print(f"{printable(written)}: written")
    if arguments.switch("open"):
        import webbrowser

        webbrowser.open(Path(written).resolve().as_uri())
    return 0
