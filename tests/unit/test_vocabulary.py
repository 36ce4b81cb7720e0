"""Files of words: what is read, and which line is at fault."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tfckpt.errors import PolicyError
from tfckpt.stored.io.word_list import read_words

if TYPE_CHECKING:
    from pathlib import Path


def write(directory: Path, content: bytes) -> str:
    path = directory / "words.txt"
    path.write_bytes(content)
    return str(path)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"a\nb\n", ("a", "b")),
        (b"a\nb", ("a", "b")),
        (b"a\r\nb\r\n", ("a", "b")),
        ("ä\n 日本\n[PAD]\n".encode(), ("ä", " 日本", "[PAD]")),
        (b" \na b\n\t\n", (" ", "a b", "\t")),
    ],
)
def test_each_line_is_a_word_as_it_stands(tmp_path: Path, content: bytes, words) -> None:
    assert read_words(write(tmp_path, content)) == words


@pytest.mark.parametrize(
    ("content", "line", "text"),
    [
        (b"a\n\nb\n", 2, "the line is empty"),
        (b"a\nb\n\n", 3, "the line is empty"),
        (b"a\nb\na\n", 3, "duplicate word 'a', first on line 1"),
        (b"a\n\xff\n", 2, "not valid UTF-8"),
        (b"", 0, "no words"),
    ],
)
def test_the_line_at_fault_is_named(tmp_path: Path, content: bytes, line: int, text: str) -> None:
    path = write(tmp_path, content)
    with pytest.raises(PolicyError) as caught:
        read_words(path)
    (problem,) = caught.value.problems
    assert problem.line == line
    assert text in problem.message
    assert str(caught.value).startswith(f"{path}:{line}:" if line else f"{path}: ")


def test_a_file_that_is_not_there_or_none_is_told(tmp_path: Path) -> None:
    for path in (tmp_path / "absent.txt", tmp_path):
        with pytest.raises(PolicyError, match="cannot be read"):
            read_words(str(path))
