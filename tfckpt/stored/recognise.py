"""What a path is, told from the files: their names beside it, and their first and last bytes."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from tfckpt.stored.bundle import index_path
from tfckpt.stored.files import join

if TYPE_CHECKING:
    from tfckpt.stored.files import Files

SAVED_MODELS = ("saved_model.pb", "saved_model.pbtxt")


class Format(Enum):
    """A format with a reader of its own."""

    BUNDLE = "bundle"
    SAVED_MODEL = "saved_model"


def recognise(path: str, files: Files) -> Format:
    """The format of what is there; ``BUNDLE``, whose reader says what is wrong, for no other."""
    if files.exists(index_path(path)):
        return Format.BUNDLE
    if any(files.exists(join(path, name)) for name in SAVED_MODELS):
        return Format.SAVED_MODEL
    return Format.BUNDLE
