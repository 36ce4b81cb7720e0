"""Config files that plain PyYAML runs away on, runs code for, or quietly reads as something else.

Bounded time is shown by doing it: each bomb here would outlast any test run if it went off.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tfckpt.errors import PolicyError
from tfckpt.policy import load_config
from tfckpt.policy.yaml_loader import MAX_BYTES

LEVELS = 25
ALIAS_BOMB = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, LEVELS)
)
MERGE_BOMB = "a0: &a0 {x: 1}\n" + "".join(
    f"a{i}: &a{i} {{<<: [*a{i - 1}, *a{i - 1}]}}\n" for i in range(1, LEVELS)
)


def refused(tmp_path: Path, text: str | bytes) -> PolicyError:
    path = tmp_path / "config.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(PolicyError) as caught:
        load_config(path, {})
    return caught.value


@pytest.mark.parametrize(
    ("text", "message", "line"),
    [
        ("version: 1\n" + ALIAS_BOMB, "configs do not support anchors", 2),
        ("version: 1\n" + MERGE_BOMB, "configs do not support anchors", 2),
        ("version: 1\npolicies: &p {a: *p}\n", "anchor", 2),
        (
            "version: 1\nrestore: !!python/object/apply:os.system [id]\n",
            "configs do not support tags",
            2,
        ),
        ("version: 1\nrestore: !!binary aGk=\n", "configs do not support tags", 2),
        ("version: 1\npolicies: {a: {<<: {api: read}}}\n", "configs do not support merge keys", 2),
        ("version: 1\nversion: 1\n", "duplicate key `version`, first on line 1", 2),
        ("version: 1\npolicies:\n  a: {}\n  a: {api: read}\n", "first on line 3", 4),
        ("version: " + "1" * 100_000 + "\n", "64 bits", 1),
        ("version: 1\nrestore: " + "[" * 100_000, "nested", 2),
        ("version: 1\nrestore: " + "{a: " * 100_000, "nested", 2),
        ("- " * 100_000, "nested", 1),
        ("? " * 100_000, "nested", 1),
        ("version: 1\nrestore: [" + "a, " * 100_000 + "]", "values", 2),
        ("version: 1\npolicies: {a: {allow_empty: no}}\n", "`no` is a boolean", 2),
        ("version: 1\nmanager: {directory: a, max_to_keep: 012}\n", "`012`", 2),
        ("version: 1\nmanager: {directory: a, save: {every_steps: 1:30}}\n", "`1:30`", 2),
        ("version: 1\nmanager: {directory: a, max_to_keep: '3'}\n", "a whole number", 2),
        ("version: 1\nmanager: [a]\n", "expected a mapping, found a list", 2),
        ("version: 1\nrestore: {}\n", "neither", 2),
        ("version: 1\npolicies: {a: {include: ['re:(a+)+\\1']}}\n", "back-references", 2),
        ("version: 1\n---\nversion: 1\n", "second YAML document", 2),
        ('version: 1\nrestore: {path: "a\\0b"}\n', "NUL", 2),
        (b"version: 1\nrestore: {path: a\x00b}\n", "U+0000", 2),
        (b"version: 1\nrestore: {path: \xc3\x28}\n", "not UTF-8", 2),
    ],
    ids=range(25),
)
def test_it_is_an_error_with_a_line(
    tmp_path: Path, text: str | bytes, message: str, line: int
) -> None:
    first = refused(tmp_path, text).problems[0]
    assert message in first.message
    assert first.line == line
    assert first.column >= 1


def test_a_file_without_end_is_not_read_to_its_end(tmp_path: Path) -> None:
    assert "larger than" in str(refused(tmp_path, b"#" * (MAX_BYTES + 1)))
    endless = Path("/dev/zero")
    if endless.exists():
        with pytest.raises(PolicyError, match="larger than"):
            load_config(endless, {})


def test_a_file_of_nothing_but_faults_has_a_bounded_report(tmp_path: Path) -> None:
    error = refused(tmp_path, "version: 1\n" + "a: no\n" * 50_000)
    assert 50 < len(error.problems) < 500


def test_plain_pyyaml_reads_these_as_something_else() -> None:
    """The reason for all of it; if this fails, PyYAML has changed."""
    assert yaml.safe_load("a: no\nb: 012\nc: 1:30:00\na: 2") == {"a": 2, "b": 10, "c": 5400}
