"""``tfckpt.report_page``: write the HTML page about a run, a checkpoint, a difference or a plan."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

from tfckpt.errors import ARGUMENTS, PolicyError, Problem, SaveError
from tfckpt.pages.checkpoint_page import checkpoint_page
from tfckpt.pages.documents import page_of, page_of_file
from tfckpt.pages.shell import render
from tfckpt.stored.io.files import LOCAL, absolute
from tfckpt.stored.io.new_file import new_file
from tfckpt.tools.find_checkpoint import is_checkpoint, path_of
from tfckpt.tools.progress import silent

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tfckpt.pages.shell import Page
    from tfckpt.policy import Keep
    from tfckpt.tools.progress import Progress

_UNSAFE = re.compile(r"[^\w.-]+")


def report_page(
    source: str | os.PathLike[str] | Any,
    *others: str | os.PathLike[str],
    html: str | os.PathLike[str] | None = None,
    values: bool = False,
    keep: Iterable[Keep | Mapping[str, Any]] = (),
    checkpoint_name: str | None = None,
    force: bool = False,
    progress: Progress = silent,
) -> str:
    """Write an HTML page, as ``tfckpt report`` does; one file, which loads nothing.

    Args:
        source: the directory of a run; a checkpoint; a JSON document of a command; or what
            :func:`tfckpt.inspect`, :func:`tfckpt.diff`, :func:`tfckpt.plan` or a restore returned.
        others: a checkpoint to compare ``source`` with; of several, each is compared with the one
            before it and with the first.
        html: the file to write; ``report-NAME.html`` in the working directory by default.
        values: whether to read the values, for statistics or for how far they are apart.
        keep: retention rules, as in a config: a page of a run then says what they keep.
        checkpoint_name: the name of those that the rules are for, where the directory has several.
        force: whether to write over an existing file.
        progress: as for :func:`tfckpt.inspect`.

    Returns:
        The path of the page.

    Raises:
        CheckpointError: there is no checkpoint, or it cannot be read.
        SaveError: the file exists, or cannot be written.

    >>> import keras, tempfile, tfckpt
    >>> model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2, name="out")])
    >>> directory = tempfile.mkdtemp()
    >>> path = tfckpt.Checkpoint(model=model).save(directory + "/ckpt")
    >>> tfckpt.report_page(path, html=directory + "/page.html").endswith("/page.html")
    True
    """
    target = os.fspath(html) if html is not None else _default(source, *others)
    if not force and LOCAL.exists(absolute(target)):
        message = f"{target}: already exists and is not overwritten"
        hint = "choose another name, or write over it: --force, in Python `force=True`"
        raise SaveError(message, hint=hint)
    page = _page(source, others, values=values, keep=keep, name=checkpoint_name, progress=progress)
    content = render(page).encode()
    with new_file(target, replaces=force) as output:
        output.write(content)
    return target


def _default(*sources: Any) -> str:
    """``report-ckpt-1-ckpt-9.html`` for the first and the last source."""
    ends = [sources[0], *sources[-1:]] if len(sources) > 1 else sources
    paths = [os.fspath(one) if isinstance(one, str | os.PathLike) else "" for one in ends]
    names = [path.rstrip("/").rpartition("/")[2].removesuffix(".json") for path in paths]
    shown = _UNSAFE.sub("_", "-".join(filter(None, names))).strip("._")
    return f"report-{shown or 'page'}.html"


def _page(
    source: Any,
    others: tuple[str | os.PathLike[str], ...],
    *,
    values: bool,
    keep: Iterable[Keep | Mapping[str, Any]],
    name: str | None,
    progress: Progress,
) -> Page:
    if not others and hasattr(source, "to_json"):
        return page_of(source.to_json())
    paths = [path_of(one) for one in (source, *others)]
    if keep and (others or is_checkpoint(paths[0])):
        hint = "leave `keep` out, or give the directory of a run alone"
        raise PolicyError(ARGUMENTS, [Problem("`keep` is for the page of a run", hint=hint)])
    if len(paths) > 2:
        from tfckpt.pages.movement_page import movement_page
        from tfckpt.tools.movement import movement

        return movement_page(movement(paths, progress))
    if others:
        from tfckpt.tools.comparison import diff

        compared = diff(*paths, values=values, histograms=values, progress=progress)
        return page_of(compared.to_json())
    (path,) = paths
    if (page := page_of_file(path)) is not None:
        return page
    if is_checkpoint(path):
        from tfckpt.tools.inspection import inspect

        return checkpoint_page(inspect(path, values=values, progress=progress).to_json())
    from tfckpt.tools.listing import list_checkpoints

    rows = list_checkpoints(path, keep=keep, checkpoint_name=name)
    return page_of({"directory": path, "checkpoints": [row.to_json() for row in rows]})
