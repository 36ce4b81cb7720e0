"""Vocabularies of lookup layers: equal on both sides, or the layer's is empty and is filled.

A lookup layer creates its table once, and anything traced with the layer, such as a ``tf.data``
pipeline, keeps using that table. So an existing vocabulary is never replaced. Vocabularies are
compared by the checksum in the checkpoint's index.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tfckpt.core.inventory import Entry

NOT_SAVED = (
    "not in the checkpoint: only tfckpt saves vocabularies and bins. The model keeps its own, "
    "which must be those that it was trained with"
)
HINT = (
    "build the layer with the entries in the checkpoint (`tfckpt inspect --name` shows them), or "
    "exclude them in the policy to keep the model's"
)


def ambiguity(stored: Entry, live: Entry) -> str:
    """Why a stored vocabulary cannot be restored into the live layer; ``""`` if it can.

    >>> from tfckpt.core.inventory import Entry, Role
    >>> words = Entry("model/text/vocabulary", Role.VOCABULARY, "string", (3,), crc32c=7)
    >>> ambiguity(words, words), ambiguity(words, words._replace(shape=(0,), crc32c=1))
    ('', '')
    >>> ambiguity(words, words._replace(crc32c=1))
    'the layer has 3 entries; the checkpoint has other entries, or another order'
    """
    if stored.dtype != live.dtype:
        return f"the layer's entries are {live.dtype}, those in the checkpoint are {stored.dtype}"
    if live.shape == (0,) or None in (stored.crc32c, live.crc32c):
        return ""  # compared when it is assigned
    if stored.shape != live.shape:
        return f"the layer has {_count(live)}, and the checkpoint has {_count(stored)}"
    if stored.crc32c != live.crc32c:
        return f"the layer has {_count(live)}; the checkpoint has other entries, or another order"
    return ""


def _count(entry: Entry) -> str:
    count = entry.shape[0] if entry.shape else 0
    return f"{count:,} entr{'y' if count == 1 else 'ies'}"
