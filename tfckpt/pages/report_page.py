"""``tfckpt.report_page``: write the HTML page about a run, a checkpoint, a difference, a plan."""

from __future__ import annotations

import os
import re
from functools import partial
from typing import TYPE_CHECKING, Any

from tfckpt.errors import SaveError, UnsupportedCheckpointError
from tfckpt.pages.result_pages import checkpoint_page, difference_page, plan_page
from tfckpt.pages.run_page import run_page
from tfckpt.planning import Plan
from tfckpt.stored.commits.new_file import new_file
from tfckpt.stored.io.files import LOCAL, absolute, files_of
from tfckpt.tools.comparison import ComparedCheckpoints
from tfckpt.tools.find_checkpoint import is_checkpoint, path_of
from tfckpt.tools.inspection import Inspection, inspect
from tfckpt.tools.listing import list_checkpoints

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from tfckpt.policy import Keep

_UNSAFE = re.compile(r"[^\w.-]+")


def report_page(
    about: str | os.PathLike[str] | Inspection | ComparedCheckpoints | Plan,
    *,
    html: str | os.PathLike[str] | None = None,
    keep: Iterable[Keep | Mapping[str, Any]] = (),
    checkpoint_name: str | None = None,
    values: bool = False,
    force: bool = False,
) -> str:
    """Write an HTML page, as ``tfckpt report`` does; one file, which loads nothing.

    Args:
        about: the directory of a run, or the path of a checkpoint; or what :func:`tfckpt.inspect`,
            :func:`tfckpt.diff` or :func:`tfckpt.plan` returned.
        html: the file to write; ``report-NAME.html`` in the working directory by default.
        keep: retention rules, as in a config: the page of a run then says what they keep.
        checkpoint_name: the name of those that the rules are for, where the directory has several.
        values: whether the page of a checkpoint has statistics, for which every value is read.
        force: whether to write over an existing file.

    Returns:
        The path of the page.

    Raises:
        CheckpointNotFoundError: there is no checkpoint.
        DamagedCheckpointError: there is one, but it cannot be read.
        UnsupportedCheckpointError: it is nothing that a page can be made of.
        SaveError: the file exists, or cannot be written.

    >>> import keras, tempfile, tfckpt
    >>> model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2, name="out")])
    >>> directory = tempfile.mkdtemp()
    >>> path = tfckpt.Checkpoint(model=model).save(directory + "/ckpt")
    >>> tfckpt.report_page(directory, html=directory + "/run.html").endswith("/run.html")
    True
    >>> found = tfckpt.diff(path, model, values=True)
    >>> tfckpt.report_page(found, html=directory + "/diff.html").endswith("/diff.html")
    True
    """
    name, page = _page(about, keep, checkpoint_name, values=values)
    safe = _UNSAFE.sub("_", name.rstrip("/").rpartition("/")[2]).strip("._")
    target = os.fspath(html) if html is not None else f"report-{safe or 'page'}.html"
    if not force and LOCAL.exists(absolute(target)):
        message = f"{target}: already exists and is not overwritten"
        hint = "choose another name, or write over it: --force, in Python `force=True`"
        raise SaveError(message, hint=hint)
    content = page().encode()
    with new_file(target, replaces=force) as output:
        output.write(content)
    return target


def _page(
    about: Any,
    keep: Iterable[Keep | Mapping[str, Any]],
    checkpoint_name: str | None,
    *,
    values: bool,
) -> tuple[str, Callable[[], str]]:
    """The name of what a page is about, and what makes the page."""
    if isinstance(about, Inspection):
        return about.path, partial(checkpoint_page, about)
    if isinstance(about, ComparedCheckpoints):
        return about.b, partial(difference_page, about)
    if isinstance(about, Plan):
        return about.source, partial(plan_page, about)
    if about is not None and not isinstance(about, str | os.PathLike):
        hint = "give a path, or what inspect, diff or plan returned"
        raise UnsupportedCheckpointError("cannot be a page", path=repr(about), hint=hint)
    path = path_of(about)
    files = files_of(path)
    exists = files.exists(path) or files.exists(f"{path}.index")
    if exists and is_checkpoint(path):
        return path, lambda: checkpoint_page(inspect(path, values=values))
    listed = partial(list_checkpoints, path, keep=keep, checkpoint_name=checkpoint_name)
    return path, lambda: run_page(path, listed())
