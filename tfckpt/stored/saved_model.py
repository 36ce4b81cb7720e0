"""Opens the variables of a SavedModel directory, which are a bundle.

Read are the variables and the layer metadata that Keras wrote
(:mod:`tfckpt.stored.keras_metadata.saved_model`), not the graph in ``saved_model.pb``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfckpt.errors import DamagedCheckpointError
from tfckpt.stored.bundles.bundle import index_path
from tfckpt.stored.io.files import LOCAL, Files
from tfckpt.stored.keras_metadata.saved_model import read_metadata
from tfckpt.stored.open import SAVED_MODEL, open_bundle
from tfckpt.stored.paths.wrong_paths import VARIABLES

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from tfckpt.core.inventory import Root
    from tfckpt.stored.formats.checkpoint import StoredCheckpoint


def open_saved_model(
    path: str,
    *,
    roots: Mapping[str, Root] | None = None,
    bases: Collection[str] = (),
    files: Files = LOCAL,
) -> StoredCheckpoint:
    """Open the variables of a SavedModel, given by its directory or the prefix of its variables."""
    directory = path.rstrip("/").removesuffix(VARIABLES)
    prefix = directory + VARIABLES
    if not files.exists(index_path(prefix)):
        message = "is a SavedModel without variables: 'variables/variables.index' is missing"
        hint = "Copy the directory 'variables' too; a frozen model has none and cannot be read."
        raise DamagedCheckpointError(message, path=directory, hint=hint)
    return open_bundle(
        prefix,
        roots=roots,
        bases=bases,
        files=files,
        kind=SAVED_MODEL,
        metadata=read_metadata(directory, files),
    )
