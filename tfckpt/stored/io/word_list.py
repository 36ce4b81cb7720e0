"""Reads a word list, one word per line, such as the vocabulary of a tokenizer or a lookup layer.

The line number is the row of an embedding table, so no line is skipped and nothing but the line end
is stripped. Refused are empty lines and duplicate words, whose rows would be ambiguous.
"""

from __future__ import annotations

from tfckpt.errors import CheckpointError, PolicyError, Problem
from tfckpt.stored.io import limits
from tfckpt.stored.io.files import LOCAL, Files, content


def read_words(path: str, files: Files = LOCAL) -> tuple[str, ...]:
    r"""The words of a UTF-8 file in order.

    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp(), "words.txt")
    >>> _ = path.write_text("the\nof\n")
    >>> read_words(str(path))
    ('the', 'of')
    """
    lines = _read(path, files).split(b"\n")
    if not lines[-1]:
        lines.pop()
    seen: dict[str, int] = {}
    for number, line in enumerate(lines, 1):
        try:
            word = line.removesuffix(b"\r").decode("utf-8")
        except UnicodeDecodeError as error:
            raise _wrong(path, "the line is not valid UTF-8", number, error.start + 1) from None
        if not word:
            raise _wrong(path, "the line is empty; every line must be a word", number)
        if word in seen:
            message = f"duplicate word {word[:60]!r}, first on line {seen[word]}"
            raise _wrong(path, message, number)
        seen[word] = number
    if not seen:
        raise _wrong(path, "the file contains no words")
    return tuple(seen)


def _read(path: str, files: Files) -> bytes:
    try:
        return content(path, files, limits.WORDS)
    except CheckpointError as error:
        raise _wrong(path, f"the word list cannot be read: it {error.message}") from None
    except OSError as error:
        reason = error.strerror or str(error)
        raise _wrong(path, f"the word list cannot be read: {reason}") from None


def _wrong(path: str, message: str, line: int = 0, column: int = 1) -> PolicyError:
    return PolicyError(path, [Problem(message, line, column)])
