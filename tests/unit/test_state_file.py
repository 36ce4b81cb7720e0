"""The state file, against what TensorFlow writes and reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfckpt.errors import DamagedCheckpointError
from tfckpt.stored.io.messages import CheckpointState
from tfckpt.stored.io.state_file import parse_state, read_state, render

if TYPE_CHECKING:
    from pathlib import Path

text_format = pytest.importorskip("google.protobuf.text_format")


@pytest.fixture(scope="module")
def message() -> Any:
    """TensorFlow's message, empty; its module is private, its type is not."""
    tf = pytest.importorskip("tensorflow")
    from tensorflow.python.training import checkpoint_state_pb2  # noqa: F401

    return type(tf.compat.v1.train.generate_checkpoint_state_proto("d", "p"))


PATHS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1)
TIMES = st.floats(allow_nan=False)


@st.composite
def states(draw: Any) -> Any:
    paths = draw(st.lists(PATHS, max_size=4))
    timed = draw(st.booleans())
    times = draw(st.lists(TIMES, min_size=len(paths), max_size=len(paths))) if timed else []
    last = draw(st.none() | TIMES)
    return CheckpointState(
        model_checkpoint_path=draw(PATHS),
        all_model_checkpoint_paths=paths,
        all_model_checkpoint_timestamps=times,
        last_preserved_timestamp=last,
    )


def fields(state: Any) -> tuple[Any, ...]:
    return (
        state.model_checkpoint_path,
        list(state.all_model_checkpoint_paths),
        list(state.all_model_checkpoint_timestamps),
        state.last_preserved_timestamp or 0.0,
    )


@given(states())
def test_tensorflow_reads_what_is_rendered(message: Any, state: Any) -> None:
    rendered = render(
        state.model_checkpoint_path,
        state.all_model_checkpoint_paths,
        state.all_model_checkpoint_timestamps,
        state.last_preserved_timestamp,
    )
    read = text_format.Parse(rendered, message())
    assert fields(read) == fields(state)
    assert text_format.MessageToString(read).encode() == rendered


@given(states(), st.booleans())
def test_what_tensorflow_writes_is_read(message: Any, state: Any, raw: bool) -> None:
    written = message(
        model_checkpoint_path=state.model_checkpoint_path,
        all_model_checkpoint_paths=state.all_model_checkpoint_paths,
        all_model_checkpoint_timestamps=state.all_model_checkpoint_timestamps,
    )
    if state.last_preserved_timestamp:
        written.last_preserved_timestamp = state.last_preserved_timestamp
    text = text_format.MessageToString(written, as_utf8=raw)
    assert fields(parse_state(text.encode(), "checkpoint")) == fields(written)


TEXTS = {
    "either quote": b"model_checkpoint_path: 'it\"s'",
    "adjacent strings": b'model_checkpoint_path: "a" \'b\'\n"c"',
    "comment": b'# first\nmodel_checkpoint_path: "a" # second',
    "escapes": rb'model_checkpoint_path: "\a\b\f\n\r\t\v\\\'\"\7\101\x41\xC3\xA9\u00e9\U0001F600"',
    "separators": b'model_checkpoint_path: "a"; last_preserved_timestamp: 2.5,',
    "numbers": b'model_checkpoint_path: "a" last_preserved_timestamp: -1.5e3f',
    "infinity": b'model_checkpoint_path: "a" last_preserved_timestamp: -inf',
    "one line": b'model_checkpoint_path:"a"all_model_checkpoint_paths:"a"',
}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS.keys())
def test_the_text_format_is_read_as_protobuf_does(message: Any, text: bytes) -> None:
    expected = text_format.Parse(text.decode(), message())
    assert fields(parse_state(text, "checkpoint")) == fields(expected)


DAMAGED = {
    "empty": b"",
    "only space": b" \n\n",
    "cut in a name": b'model_checkpoint_path: "a"\nall_mod',
    "cut after the name": b"model_checkpoint_path",
    "cut before the value": b"model_checkpoint_path: ",
    "cut in the value": b'\nmodel_checkpoint_path: "ckpt',
    "empty path": b'model_checkpoint_path: ""',
    "no newest": b'all_model_checkpoint_paths: "a"\n',
    "newest twice": b'model_checkpoint_path: "a"\nmodel_checkpoint_path: "b"',
    "unknown field": b'model_checkpoint_path: "a"\nmodel_path: "a"',
    "number for a path": b"model_checkpoint_path: 3",
    "path for a time": b'model_checkpoint_path: "a"\nlast_preserved_timestamp: "b"',
    "no number": b'model_checkpoint_path: "a"\nlast_preserved_timestamp: yes',
    "escape beyond Unicode": rb'model_checkpoint_path: "\U00110000"',
    "newline in a path": b'model_checkpoint_path: "a\nb"',
    "not UTF-8": b'model_checkpoint_path: "\xff"',
    "zero byte": rb'model_checkpoint_path: "a\000b"',
    "zeros, as after a crash": b"\0" * 40,
    "braces": b'model_checkpoint_path: "a"\n{ }',
    "times and paths differ in number": (
        b'model_checkpoint_path: "a"\nall_model_checkpoint_timestamps: 1.0'
    ),
}


@pytest.mark.parametrize("text", DAMAGED.values(), ids=DAMAGED.keys())
def test_damage_is_an_error_with_the_file(tmp_path: Path, text: bytes) -> None:
    path = tmp_path / "checkpoint"
    path.write_bytes(text)
    with pytest.raises(DamagedCheckpointError) as caught:
        read_state(str(path))
    assert caught.value.path == str(path)


@given(st.binary(max_size=60))
def test_any_bytes_are_a_state_or_damage(data: bytes) -> None:
    for text in (data, b'model_checkpoint_path: "a" ' + data):
        try:
            state = parse_state(text, "checkpoint")
        except DamagedCheckpointError:
            continue
        assert state.model_checkpoint_path


def test_an_absent_file_is_none_and_a_directory_is_an_error(tmp_path: Path) -> None:
    assert read_state(str(tmp_path / "checkpoint")) is None
    (tmp_path / "checkpoint").mkdir()
    with pytest.raises(ValueError, match="a directory"):
        read_state(str(tmp_path / "checkpoint"))


def test_a_path_outside_the_directory_is_returned_as_written() -> None:
    text = render("../victim/ckpt-1", ["/etc/ckpt-1", "ckpt-*"])
    state = parse_state(text, "checkpoint")
    assert state.model_checkpoint_path == "../victim/ckpt-1"
    assert [*state.all_model_checkpoint_paths] == ["/etc/ckpt-1", "ckpt-*"]


def test_real_state_files_are_read(corpus: Path) -> None:
    files = sorted(corpus.glob("*/checkpoint"))
    assert files
    for file in files:
        lines = file.read_text().splitlines()
        newest, *rest = [line.split(": ", 1)[1].strip('"') for line in lines]
        state = read_state(str(file))
        assert (state.model_checkpoint_path, *state.all_model_checkpoint_paths) == (newest, *rest)
