"""Rules of ``adapt`` in a file: what is read, and what is said of what is wrong, line by line."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tfckpt.errors import PolicyError
from tfckpt.policy import load_config, load_policy

if TYPE_CHECKING:
    from pathlib import Path

FILE = """\
version: 1
restore: {path: zoo/ckpt-1, policy: p}
policies:
  p:
    adapt:
      - {how: rezise, model: a}
      - {model: a}
      - transpose
      - {how: resize, model: a, metod: bicubic}
      - {how: resize, model: "a//b", method: cubic}
      - {how: resize, model: a, axes: [0], grid: [2, 2]}
      - {how: resize, model: a, prefix: 1}
      - {how: resize, model: a, grid: [2], to_grid: [1, 2]}
      - {how: pad, model: a}
      - {how: pad, model: a, value: true}
      - {how: pad, model: a, value: 0, before: [-1]}
      - {how: split, checkpoint: "a/*", model: ["b/*", c], axis: 0}
      - {how: split, checkpoint: a, model: [b], axis: 0}
      - {how: split, checkpoint: a, model: [b, b], axis: 0}
      - {how: split, checkpoint: a, model: [b, c], axis: 0, sizes: [1]}
      - {how: concat, checkpoint: ["a/*", "b/**"], model: "c/*", axis: 0}
      - {how: concat, checkpoint: [a, a], model: c, axis: 0}
      - {how: reshape, model: a, shape: [-1, -1]}
      - {how: cast, model: a, casting: unsafe}
      - {how: function, model: a, nam: b}
      - {how: function, name: b, model: "a//"}
      - {how: vocabulary, model: a, old: 3, new: "${NOWHERE}"}
      - {how: transpose, model: a, axes: []}
"""


def test_every_fault_is_told_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(FILE, encoding="utf-8")
    with pytest.raises(PolicyError) as caught:
        load_config(path, {})
    found: dict[int, str] = {}
    for problem in caught.value.problems:
        found[problem.line] = found.get(problem.line, "") + f"{problem.message} {problem.hint}; "
    expected = {
        6: "found the text 'rezise' did you mean `resize`?",
        7: "the key `how` is missing",
        8: "expected a mapping, found the text 'transpose'",
        9: "metod: unknown key did you mean `method`?",
        10: "'a//b' has an empty level",
        11: "use `axes` or `grid`, not both",
        12: "`prefix` needs `grid`",
        13: "`to_grid` and `grid` must have the same number of sizes",
        14: "value: the key is missing",
        15: "expected a number, initialize, or the name of an initializer, found true",
        16: "expected at least 0",
        17: "same wildcards",
        18: "expected a list of at least 2",
        19: "`model` has b twice",
        20: "`sizes` must have one size for each name",
        21: "same wildcards",
        22: "`checkpoint` has a twice",
        23: "at most one -1",
        24: "expected 'safe', 'same_kind' or 'any'",
        25: "nam: unknown key did you mean `name`?",
        26: "empty level",
        27: "NOWHERE is not set",
        28: "expected a list of at least 1",
    }
    assert found.keys() == expected.keys()
    for line, text in expected.items():
        assert text in found[line], line
    assert "expected 'bilinear', 'bicubic' or 'nearest'" in found[10]
    assert "old: expected text" in found[27]


def test_files_are_filled_in_and_selectors_are_not() -> None:
    rules = [
        {"how": "vocabulary", "model": "re:a$", "old": "${D}/o.txt", "new": "${D}/n.txt"},
        {"how": "split", "checkpoint": "$a", "model": ["$b", "$c"], "axis": 0},
    ]
    (words, split) = load_policy({"adapt": rules}, {"D": "data"}).adapt
    assert (words.model, words.old, words.new) == ("re:a$", "data/o.txt", "data/n.txt")
    assert (split.checkpoint, split.model) == ("$a", ("$b", "$c"))


def test_a_rule_knows_its_line(tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text("adapt:\n  - {how: cast, model: a}\n  - {how: transpose, model: b}\n")
    policy = load_policy(path, {})
    assert [policy.where("adapt", i)[0] for i in range(2)] == [2, 3]
