"""``tfckpt.report_page``: write the HTML page about a run."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

from tfckpt.errors import SaveError, UnsupportedCheckpointError
from tfckpt.pages.run_page import run_page
from tfckpt.stored.commits.new_file import new_file
from tfckpt.stored.io.files import LOCAL, absolute
from tfckpt.tools.find_checkpoint import files_of, is_checkpoint, path_of
from tfckpt.tools.listing import list_checkpoints

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tfckpt.policy import Keep

_UNSAFE = re.compile(r"[^\w.-]+")


def report_page(
    directory: str | os.PathLike[str],
    *,
    html: str | os.PathLike[str] | None = None,
    keep: Iterable[Keep | Mapping[str, Any]] = (),
    checkpoint_name: str | None = None,
    force: bool = False,
) -> str:
    """Write the HTML page of a run, as ``tfckpt report`` does; one file, which loads nothing.

    Args:
        directory: of the run.
        html: the file to write; ``report-NAME.html`` in the working directory by default.
        keep: retention rules, as in a config: the page then says what they keep.
        checkpoint_name: the name of those that the rules are for, where the directory has several.
        force: whether to write over an existing file.

    Returns:
        The path of the page.

    Raises:
        CheckpointNotFoundError: there is no checkpoint.
        UnsupportedCheckpointError: it is not the directory of a run.
        SaveError: the file exists, or cannot be written.

    >>> import keras, tempfile, tfckpt
    >>> model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2, name="out")])
    >>> directory = tempfile.mkdtemp()
    >>> path = tfckpt.Checkpoint(model=model).save(directory + "/ckpt")
    >>> tfckpt.report_page(directory, html=directory + "/page.html").endswith("/page.html")
    True
    """
    is_path = directory is None or isinstance(directory, str | os.PathLike)
    path = path_of(directory) if is_path else repr(directory)
    name = _UNSAFE.sub("_", path.rstrip("/").rpartition("/")[2]).strip("._")
    target = os.fspath(html) if html is not None else f"report-{name or 'page'}.html"
    if not force and LOCAL.exists(absolute(target)):
        message = f"{target}: already exists and is not overwritten"
        hint = "choose another name, or write over it: --force, in Python `force=True`"
        raise SaveError(message, hint=hint)
    files = files_of(path)
    exists = files.exists(path) or files.exists(f"{path}.index")
    if not is_path or (exists and is_checkpoint(path)):
        hint = (
            "a page is made of a run's directory; what a checkpoint, a difference or a plan has to "
            "say, `tfckpt inspect`, `tfckpt diff` and `tfckpt plan` print with --json"
        )
        raise UnsupportedCheckpointError("is not the directory of a run", path=path, hint=hint)
    found = list_checkpoints(path, keep=keep, checkpoint_name=checkpoint_name)
    content = run_page(path, found).encode()
    with new_file(target, replaces=force) as output:
        output.write(content)
    return target
