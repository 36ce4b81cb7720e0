"""Config files that plain PyYAML runs away on, or runs code for.

Bounded time is shown by doing it: each bomb here would outlast any test run if it went off.
"""

from __future__ import annotations

from pathlib import Path

import pytest

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


def refused(tmp_path: Path, text: str) -> PolicyError:
    path = tmp_path / "config.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(PolicyError) as caught:
        load_config(path, {})
    return caught.value


@pytest.mark.parametrize(
    ("text", "message", "line"),
    [
        ("version: 1\n" + ALIAS_BOMB, "configs do not support anchors", 2),
        ("version: 1\n" + MERGE_BOMB, "configs do not support anchors", 2),
        ("version: 1\npolicies: &p {a: *p}\n", "anchor", 2),
        ("version: 1\nrestore: !!python/object/apply:os.system [id]\n", "do not support tags", 2),
        ("version: 1\nrestore: !!binary aGk=\n", "configs do not support tags", 2),
        ("version: 1\npolicies: {a: {<<: {api: read}}}\n", "configs do not support merge keys", 2),
        ("version: " + "1" * 100_000 + "\n", "64 bits", 1),
        ("version: 1\nrestore: " + "[" * 100_000, "nested", 2),
        ("version: 1\nrestore: " + "{a: " * 100_000, "nested", 2),
        ("- " * 100_000, "nested", 1),
        ("? " * 100_000, "nested", 1),
        ("version: 1\nrestore: [" + "a, " * 100_000 + "]", "values", 2),
    ],
    ids=range(12),
)
def test_it_is_an_error_with_a_line(tmp_path: Path, text: str, message: str, line: int) -> None:
    first = refused(tmp_path, text).problems[0]
    assert message in first.message
    assert first.line == line
    assert first.column >= 1


def test_a_file_without_end_is_not_read_to_its_end(tmp_path: Path) -> None:
    assert "larger than" in str(refused(tmp_path, "#" * (MAX_BYTES + 1)))
    endless = Path("/dev/zero")
    if endless.exists():
        with pytest.raises(PolicyError, match="larger than"):
            load_config(endless, {})


def test_a_file_of_nothing_but_faults_has_a_bounded_report(tmp_path: Path) -> None:
    error = refused(tmp_path, "version: 1\n" + "a: no\n" * 50_000)
    assert 50 < len(error.problems) < 500
