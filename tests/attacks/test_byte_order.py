"""A checkpoint of a big-endian machine, which nobody can be asked for: forged from one of here."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

from tfckpt.stored.bundle import Bundle


def test_a_big_endian_checkpoint_reads_as_tensorflow_reads_it(forge: Any, tables: Any) -> None:
    import tensorflow as tf
    from google_crc32c import extend, value

    shard = Path(f"{forge.prefix}.data-00000-of-00001")
    data = bytearray(shard.read_bytes())
    items = forge.items()
    items[b""].endianness = 1
    for key, entry in items.items():
        start, end = (0, 0) if not key else (entry.offset, entry.offset + entry.size)
        if key == b"d/text":
            crc = value(struct.pack(">3I", 3, 0, 5))
            stored = struct.pack(">I", tables.mask(crc))
            data[start + 3 : start + 7] = stored
            entry.crc32c = tables.mask(extend(extend(crc, stored), bytes(data[start + 7 : end])))
        elif start < end:
            size = tf.dtypes.as_dtype(entry.dtype).size
            swapped = b"".join(bytes(data[at : at + size][::-1]) for at in range(start, end, size))
            data[start:end] = swapped
            entry.crc32c = tables.mask(value(swapped))
    shard.write_bytes(data)
    forge.write_items(items)
    reader = tf.train.load_checkpoint(forge.prefix)
    with Bundle.open(forge.prefix) as bundle:
        bundle.verify()
        forge.assert_original(bundle)
        for name in forge.values:
            assert bundle.read(name).tolist() == reader.get_tensor(name).tolist()
