"""What stands in a directory: files, numbers, the state file, and what others left."""

from __future__ import annotations

import contextlib
import os
from typing import Any

import pytest
import tensorflow as tf
from google.protobuf import text_format
from hypothesis import given
from hypothesis import strategies as st

from tfckpt.errors import DamagedCheckpointError, UnsupportedCheckpointError
from tfckpt.stored.commits.discovery import candidates, highest_number
from tfckpt.stored.io.files import LOCAL
from tfckpt.stored.io.state_file import parse_state, read_state, render


def test_only_regular_files_are_read_and_what_is_written_is_one(tmp_path) -> None:
    (tmp_path / "directory").mkdir()
    (tmp_path / "link").symlink_to("directory")
    os.mkfifo(tmp_path / "fifo")
    for name, what in {
        "link": "a symbolic link to directory",
        "directory": "a directory",
        "fifo": "a special file",
    }.items():
        with pytest.raises(UnsupportedCheckpointError, match=what):
            LOCAL.open_read(str(tmp_path / name))
    (tmp_path / "ordinary").write_bytes(b"")
    LOCAL.write_atomic(str(tmp_path / "file"), b"")
    assert (tmp_path / "file").stat().st_mode == (tmp_path / "ordinary").stat().st_mode


# Numbers

DATA = "data-00000-of-00001"
# The files, the name that is asked for, what there is, the newest first, and the highest number.
LISTED: list[tuple[str, str | None, str, int]] = [
    (
        "ckpt-9.index ckpt-100.index ckpt-11.index ckpt-2.index ckpt-10.index",
        "ckpt",
        "100 foreign, 11 foreign, 10 foreign, 9 foreign, 2 foreign",
        100,
    ),
    # Without its index it is damaged if it has a record, and torn if not.
    (
        f"ckpt-1.index ckpt-4.{DATA} ckpt-5.tfckpt.json ckpt-7.{DATA} ckpt-7.tfckpt.json "
        f"best-8.{DATA}",
        "ckpt",
        "7 damaged, 4 torn, 1 foreign",
        7,
    ),
    # What is being saved or deleted is none.
    (f"ckpt-1.{DATA} ckpt-1.tfckpt.mark ckpt-3.tfckpt.mark", "ckpt", "", 3),
    # It is whole: plain TensorFlow may have taken its number.
    (f"ckpt-1.{DATA} ckpt-1.tfckpt.mark ckpt-1.index", "ckpt", "1 foreign", 1),
    *(
        (
            "ckpt-1.index best-2.index my-ckpt-3.index ckpt-1-4.index x.index ckpt-.index "
            "ckpt-5.index.1a2b.tmp ckpt-٦.index",
            name,
            there,
            highest,
        )
        for name, there, highest in (
            ("ckpt", "1 foreign", 5),
            ("ckpt-1", "4 foreign", 4),
            (None, "4 foreign, 3 foreign, 2 foreign, 1 foreign", 5),
        )
    ),
    (f"ckpt-3.index ckpt-{'9' * 20}.index", "ckpt", "3 foreign", 3),  # too long for a counter
    # Every trace of a number counts as used.
    *(
        (f"ckpt-3.index best-9.index ckpt-x-8.index {name}", "ckpt", found + "3 foreign", 7)
        for name, found in (
            ("ckpt-7.index", "7 foreign, "),
            (f"ckpt-7.{DATA}", "7 torn, "),
            ("ckpt-7.tfckpt.json", ""),
            ("ckpt-7.tfckpt.json.0a1b2c3d.tmp", ""),
            ("ckpt-7_temp", ""),
            ("ckpt-7", ""),
            ("ckpt-007.index", "7 foreign, "),
        )
    ),
]


@pytest.mark.parametrize(("files", "name", "there", "highest"), LISTED)
def test_what_there_is(files, name, there, highest, tmp_path) -> None:
    for file in files.split():
        (tmp_path / file).touch()
    found = candidates(str(tmp_path), name)
    assert ", ".join(f"{one.number} {one.state}" for one in found) == there
    assert not name or all(one.prefix.startswith(f"{tmp_path}/{name}-") for one in found)
    assert not name or highest_number([each.name for each in tmp_path.iterdir()], name) == highest


# The state file: what TensorFlow's own message says is right


@pytest.fixture(scope="module")
def message() -> Any:
    """TensorFlow's message, empty; its module is private, its type is not."""
    return type(tf.compat.v1.train.generate_checkpoint_state_proto("d", "p"))


PATHS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1)
TIMES = st.floats(allow_nan=False)


@given(PATHS, st.lists(st.tuples(PATHS, TIMES), max_size=4), st.booleans(), TIMES, st.booleans())
def test_tensorflow_and_we_read_what_the_other_writes(
    message, newest, saved, timed, last, raw
) -> None:
    def fields(state: Any) -> tuple[Any, ...]:
        return (
            state.model_checkpoint_path,
            list(state.all_model_checkpoint_paths),
            list(state.all_model_checkpoint_timestamps),
            state.last_preserved_timestamp or 0.0,
        )

    paths, times = [path for path, _ in saved], [time for _, time in saved if timed]
    given = newest, paths, times, last
    read = text_format.Parse(rendered := render(*given), message())
    assert fields(read) == given
    assert text_format.MessageToString(read, as_utf8=True).encode() == rendered
    text = text_format.MessageToString(read, as_utf8=raw)
    assert fields(parse_state(text.encode(), "checkpoint")) == given


NEWEST = b'model_checkpoint_path: "a"\n'
DAMAGED = [
    *(b"", b" \n\n", b"\0" * 40, b"model_checkpoint_path", b"model_checkpoint_path: "),
    *(b'model_checkpoint_path: "ckpt', b'model_checkpoint_path: ""', b"model_checkpoint_path: 3"),
    *(b'model_checkpoint_path: "a\nb"', b'model_checkpoint_path: "\xff"'),
    *(rb'model_checkpoint_path: "a\000b"', rb'model_checkpoint_path: "\U00110000"'),
    b'all_model_checkpoint_paths: "a"\n',  # no newest
    *(NEWEST + more for more in (NEWEST, b"all_mod", b'model_path: "a"', b"{ }")),
    NEWEST + b'last_preserved_timestamp: "b"',
    NEWEST + b"last_preserved_timestamp: yes",
    NEWEST + b"all_model_checkpoint_timestamps: 1.0",  # of no path
]


@pytest.mark.parametrize("text", DAMAGED, ids=repr)
def test_damage_is_an_error_with_the_file(tmp_path, text) -> None:
    path = tmp_path / "checkpoint"
    assert read_state(str(path)) is None
    path.write_bytes(text)
    with pytest.raises(DamagedCheckpointError) as caught:
        read_state(str(path))
    assert caught.value.path == str(path)
    path.unlink()
    path.mkdir()
    with pytest.raises(ValueError, match="a directory"):
        read_state(str(path))


@given(st.binary(max_size=60))
def test_any_bytes_are_a_state_or_damage(data) -> None:
    for text in (data, NEWEST + data):
        with contextlib.suppress(DamagedCheckpointError):
            assert parse_state(text, "checkpoint").model_checkpoint_path
