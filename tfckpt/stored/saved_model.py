"""Opens the variables of a SavedModel directory, which are a bundle.

Read are the variables and the layer metadata that Keras wrote
(:mod:`tfckpt.stored.keras_metadata.saved_model`), not the graph in ``saved_model.pb``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfckpt.errors import DamagedCheckpointError
from tfckpt.stored.bundles.bundle import index_path
from tfckpt.stored.keras_metadata.saved_model import read_metadata
from tfckpt.stored.open import SAVED_MODEL, open_bundle
from tfckpt.stored.paths.wrong_paths import VARIABLES

if TYPE_CHECKING:
    from tfckpt.stored.formats.checkpoint import Opening, StoredCheckpoint


def open_saved_model(path: str, opening: Opening) -> StoredCheckpoint:
    """Open the variables of a SavedModel, given by its directory or the prefix of its variables."""
    directory = path.rstrip("/").removesuffix(VARIABLES)
    prefix = directory + VARIABLES
    if not opening.files.exists(index_path(prefix)):
        message = "is a SavedModel without variables: 'variables/variables.index' is missing"
        hint = "Copy the directory 'variables' too; a frozen model has none and cannot be read."
        raise DamagedCheckpointError(message, path=directory, hint=hint)
    metadata = read_metadata(directory, opening.files)
    return open_bundle(prefix, opening, kind=SAVED_MODEL, metadata=metadata)
