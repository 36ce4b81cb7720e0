"""`tfckpt report`: write an HTML page about a run, a checkpoint, a difference or a restore."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tfckpt.cli.arguments.command import UsageError, usage_errors
from tfckpt.cli.output.progress import progress
from tfckpt.core.text import printable
from tfckpt.pages.report_page import report_page

if TYPE_CHECKING:
    from tfckpt.cli.arguments.command import Arguments
    from tfckpt.policy import Keep


def run(arguments: Arguments) -> int:
    """Write the page, and show it with --open."""
    if not arguments.positional:
        raise UsageError("expected a directory, checkpoints to compare, or a JSON document")
    for path in arguments.positional:
        if path.endswith((".yaml", ".yml")):
            raise UsageError(
                f"{path} is a config; for the page of its plan run `tfckpt plan {path} --model … "
                "--json > plan.json`, then `tfckpt report plan.json`"
            )
    keep: tuple[Keep, ...] = ()
    if arguments.text("config") is not None or arguments.texts("keep"):
        from tfckpt.cli.arguments.retention_flags import rules_of  # imports pydantic

        keep = rules_of(arguments)
    with usage_errors(arguments):
        written = report_page(
            *arguments.positional,
            html=arguments.text("html"),
            values=arguments.switch("values"),
            keep=keep,
            checkpoint_name=arguments.text("checkpoint_name"),
            force=arguments.switch("force"),
            progress=progress,
        )
    print(f"{printable(written)}: written")
    if arguments.switch("open"):
        import webbrowser

        webbrowser.open(Path(written).resolve().as_uri())
    return 0
