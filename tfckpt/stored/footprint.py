"""The files of one prefix before a save, so that a save that fails can leave them as they were.

TensorFlow writes to ``ckpt-4_temp/…`` and renames, data first and the index last
(tensorflow/core/util/tensor_bundle/tensor_bundle.cc); whatever was not there before is debris of
the failed save. The commit record of an older save under the same prefix is put aside first: from
the moment that its files may change, it must not vouch for them.
"""

from __future__ import annotations

import dataclasses
import os
import re

from tfckpt.stored import commit
from tfckpt.stored.bundle import index_path
from tfckpt.stored.files import LOCAL, Files, join


@dataclasses.dataclass(frozen=True)
class Footprint:
    """What stood under a prefix.

    Attributes:
        prefix: of the save that begins.
        names: files and directories that are already there.
        record: content of an older commit record, None where there was none.
        digest: of the index that it vouched for.
    """

    prefix: str
    names: frozenset[str]
    record: bytes | None
    digest: str
    files: Files

    @classmethod
    def before_save(cls, prefix: str, files: Files = LOCAL) -> Footprint:
        """Look, make the directory, and put an older record aside.

        Raises:
            OSError: the directory cannot be made or read, or the record not removed.
            CheckpointError: the older record or index cannot be read.
        """
        files.makedirs(os.path.split(prefix)[0] or ".")
        path, record, digest = commit.path_of(prefix), None, ""
        if files.exists(path):
            handle = files.open_read(path)
            record = handle.pread(0, handle.size)
            handle.close()
            digest = commit.index_digest(prefix, files) if files.exists(index_path(prefix)) else ""
            files.remove(path)
        return cls(prefix, frozenset(_names(prefix, files)), record, digest, files)

    def restore(self) -> None:
        """Remove what is new; an older record returns if its index is still there."""
        directory = os.path.split(self.prefix)[0]
        names = _names(self.prefix, self.files)
        for name in names:
            if name not in self.names:
                self.files.remove_tree(join(directory, name))
        if self.record is None or not (self.digest and self.names <= set(names)):
            return
        if commit.index_digest(self.prefix, self.files) == self.digest:
            self.files.write_atomic(commit.path_of(self.prefix), self.record)


def _names(prefix: str, files: Files) -> list[str]:
    directory, name = os.path.split(prefix)
    mine = re.compile(
        re.escape(name) + r"(\.index|\.data-\d{5}-of-\d{5}|_temp|\.tfckpt\.json)(\..*)?", re.DOTALL
    )
    return [entry for entry in files.listdir(directory or ".") if mine.fullmatch(entry)]
