"""Configs as text: data with places, adaptations, files of words, the schema of editors."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from tfckpt.errors import PolicyError, Problem
from tfckpt.policy import load_config, load_policy
from tfckpt.policy.yaml_loader import MAX_BYTES, MAX_DEPTH, MAX_VALUES, parse
from tfckpt.stored.io.word_list import read_words


def problems(text: str | bytes) -> tuple[Problem, ...]:
    raw = text if isinstance(text, bytes) else text.encode()
    try:
        return parse(raw, "a.yaml").problems
    except PolicyError as error:
        return error.problems


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("true", True),
        ("false", False),
        ("null", None),
        ("~", None),
        ("", None),
        ("0", 0),
        ("-12", -12),
        ("+7", 7),
        ("0.9", 0.9),
        ("1e-3", 1e-3),
        ("1E5", 1e5),
        ("-.5", -0.5),
        ("9223372036854775807", 2**63 - 1),
        ("'no'", "no"),
        ('"012"', "012"),
        ("model/**", "model/**"),
        (r"'re:model/block_(\d+)'", r"re:model/block_(\d+)"),
        ("12a", "12a"),
        ("ckpt-900", "ckpt-900"),
        ("|\n  two\n  lines", "two\nlines"),
        ("[1, a, []]", [1, "a", []]),
    ],
)
def test_a_value_is_what_every_yaml_reader_takes_it_for(text: str, value: object) -> None:
    document = parse(f"a: {text}".encode(), "a.yaml")
    assert document.problems == ()
    assert document.data == {"a": value}
    assert type(document.data["a"]) is type(value)


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("no", "boolean for some YAML parsers", "write false"),
        ("Yes", "boolean for some YAML parsers", "write true"),
        ("on", "boolean for some YAML parsers", "write true"),
        ("OFF", "boolean for some YAML parsers", "write false"),
        ("True", "boolean for some YAML parsers", "write true"),
        ("012", "different number", "'012'"),
        ("08", "different number", "'08'"),
        ("0o14", "different number", "decimal"),
        ("0x1F", "different number", "decimal"),
        ("1_000", "different number", "decimal"),
        ("12:30", "different number", "'12:30'"),
        ("1:30:00", "different number", "decimal"),
        ("1:30.5", "different number", "decimal"),
        ("2024-02-30", "a date", "'2024-02-30'"),
        (".nan", "not a number", "'.nan'"),
        ("-.INF", "not a number", "'-.INF'"),
        ("NULL", "special meaning in YAML", "'NULL'"),
        ("=", "special meaning in YAML", "'='"),
        ("9223372036854775808", "64 bits", ""),
        ("1" * 5000, "64 bits", ""),
        ("1e999", "too large", ""),
        ("!!python/name:os.system", "is a YAML tag", "in quotes"),
        ("!x [1]", "is a YAML tag", "in quotes"),
        ("&x 1", "is a YAML anchor", "repeat the value"),
        ("*x", "is a YAML alias", "in quotes"),
        ('"\\0"', "a NUL", ""),
        ('"\\ud800"', "surrogate", ""),
        ("{1: 2}", "key must be text", "'1'"),
        ("{? [x] : 2}", "key must be text", ""),
        ("{<<: {b: 1}}", "merge key", ""),
        ("{no: 1}", "boolean for some YAML parsers", "'no'"),
    ],
)
def test_a_value_that_is_refused_is_explained(text: str, message: str, hint: str) -> None:
    (problem,) = problems(f"ok: 1\na: {text}\nz: 1")
    assert message in problem.message
    assert hint in problem.hint
    assert problem.line == 2
    assert problem.column >= 4


@pytest.mark.parametrize(
    ("text", "message", "line"),
    [
        ("", "empty", 1),
        ("# nothing\n", "empty", 1),
        ("- 1\n", "must be a mapping", 1),
        ("a: 1\n---\nb: 2\n", "second YAML document", 2),
        ("a:\n\tb: 1\n", "tab", 2),
        ("a: 1\nb: [1\n", "expected ',' or ']'", 3),
        ("a: 1\nb: 'x\n", "end of stream", 3),
        ("a: 1\n b: 2\n", "mapping values are not allowed", 2),
        ("a: 1\nb\n  c: 1\n", "the key has no colon", 2),
        ('a: 1\nb: "\\UFFFFFFFF"', "has an invalid number", 2),
        ("%YAML " + "9" * 5000 + ".1\n---\na: 1", "has an invalid number", 1),
        ("a: 1\nb: \x07", "U+0007", 2),
        (b"a: 1\nb: \xff", "not UTF-8", 2),
        (b"a: 1\nb: \x00", "U+0000", 2),
        (b"\xef\xbb\xbfa: 1", "byte order mark", 1),
        ("a: 1".encode("utf-16"), "byte order mark", 1),
        ("a: " + "[" * (MAX_DEPTH + 1), "nested", 1),
        ("a: [" + "1," * MAX_VALUES + "]", "values", 1),
        (b"a: 1\n" * MAX_BYTES, "larger than", 0),
    ],
)
def test_a_text_that_cannot_be_read_has_one_problem(
    text: str | bytes, message: str, line: int
) -> None:
    (problem,) = problems(text)
    assert message in problem.message
    assert problem.line == line


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("exclude: [**/bias]", '"**/bias"'),
        ("exclude: *", '"**/bias"'),
        ("exclude:\n  - *.bias", '"**/bias"'),
        (r'exclude: ["re:model/\d+"]', "single quotes"),
        ("exclude: [model/[ab]/x]", "in quotes"),
        ("exclude: @x", "in quotes"),
    ],
)
def test_a_selector_that_yaml_trips_over_is_told_to_be_quoted(text: str, hint: str) -> None:
    (problem,) = problems(text)
    assert hint in problem.hint
    assert problem.line >= 1


def test_a_key_that_is_there_twice_is_refused_and_both_lines_are_named() -> None:
    document = parse(b"a: 1\nb: {c: 1,\n  c: 2}\na: 3\n", "a.yaml")
    assert [(p.line, p.message) for p in document.problems] == [
        (3, "duplicate key `c`, first on line 2"),
        (4, "duplicate key `a`, first on line 1"),
    ]
    assert document.data == {"a": 1, "b": {"c": 1}}


def test_all_values_that_are_refused_are_found_at_once() -> None:
    assert [p.line for p in problems("a: no\nb: 012\nc: ok\nd: [&x 1, *x]\n")] == [1, 2, 4, 4]


COLUMN = "keys of one mapping, or items of one list, begin in the same column"


@pytest.mark.parametrize(
    ("text", "hint", "line"),
    [
        ("a:\n  b: 1\n   c: 2\n", COLUMN, 3),
        ("a:\n    b: 1\n\n  c: 2\n", COLUMN, 4),
        ("  a: 1\nb: 2\n", COLUMN, 2),
        ("a:\n  - b: 1\n   c: 2\n", COLUMN, 3),
        ("a:\n    - b\n   - c\n", COLUMN, 3),
        ("a:\n  b 1\n  c: 2\n", "each key has a colon", 3),
        ("a: b: c\n", "in quotes", 1),
        ("a: 'b' c\n", "in quotes", 1),
        ("", "`version: 1`, then `restore: {directory: runs/digits}`", 1),
    ],
)
def test_what_to_do_about_a_line_that_is_out_of_place(text: str, hint: str, line: int) -> None:
    (problem,) = problems(text)
    assert hint in problem.hint
    assert problem.line == line


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


PROJECT = Path(__file__).resolve().parents[2]
SCHEMA = PROJECT / "tfckpt" / "policy" / "schema.json"
READ = json.loads(SCHEMA.read_text(encoding="utf-8"))


def accepts(data: Any) -> bool:
    return bool(jsonschema.Draft202012Validator(READ).is_valid(data))


def test_the_committed_schema_is_current() -> None:
    command = [sys.executable, "-m", "docs.schema"]
    made = subprocess.run(command, cwd=PROJECT, check=True, capture_output=True, text=True).stdout
    assert json.loads(made) == READ, "run `python -m docs.schema > tfckpt/policy/schema.json`"


def test_every_key_is_described() -> None:
    for kind in (READ, *READ["$defs"].values()):
        keys = kind["properties"].items()
        assert not [key for key, value in keys if "description" not in value and key != "how"]


def test_it_is_a_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(READ)


@pytest.mark.parametrize(
    "policy",
    [
        {"assert": "none", "match": "name"},
        {"match": ["name", "structure"], "min_restored": 1},
        {"rename": [{"checkpoint": "a", "model": ["b", "c"]}]},
        {"adapt": [{"how": "pad", "model": "a", "value": 0}, {"how": "cast", "model": "b"}]},
        {"adapt": [{"how": "split", "checkpoint": "a", "model": ["b", "c"], "axis": -1}]},
        {
            "build": {
                "model": {"shape": [None, 2]},
                "b": [{"shape": [1]}],
                "c": {"x": {"shape": []}},
            }
        },
    ],
)
def test_it_accepts_what_the_loader_accepts(policy: dict[str, Any]) -> None:
    assert accepts({"version": 1, "policies": {"a": policy}})
    assert accepts({"version": 1, "restore": {"path": "a", "policy": policy, "if_none": "error"}})
    assert accepts({"version": 1, "restore": {"first_of": [{"directory": "a", "policy": policy}]}})


@pytest.mark.parametrize(
    "rule",
    [
        {},
        {"latest": 3, "pin": [1]},
        {"best": 2},
        {"best": 2, "monitor": "val_loss"},
        {"best": 2, "monitor": "val_loss", "mode": "auto"},
        {"latest": 3, "mode": "min"},
        {"every_n_hours": 0},
        {"pin": []},
        {"pin": 3},
    ],
)
def test_it_refuses_what_is_no_rule(rule: dict[str, Any]) -> None:
    assert not accepts({"version": 1, "manager": {"directory": "a", "keep": [rule]}})


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"version": 2},
        {"version": 1, "restor": {}},
        {"version": 1, "restore": {"path": "a", "directory": "b"}},
        {"version": 1, "restore": {"first_of": []}},
        {"version": 1, "policies": {"a": {"name": "b"}}},
        {"version": 1, "policies": {"a": {"assert_": "none"}}},
        {"version": 1, "policies": {"a": {"include": []}}},
        {"version": 1, "policies": {"a": {"min_restored": 2}}},
        {"version": 1, "policies": {"a": {"adapt": [{"how": "bend", "model": "b"}]}}},
        {"version": 1, "policies": {"a": {"adapt": [{"how": "cast"}]}}},
        {"version": 1, "policies": {"a": {"adapt": [{"how": "pad", "model": "b"}]}}},
        {"version": 1, "manager": {"directory": "a", "save": {"every_steps": 0}}},
        {"version": 1, "manager": {"directory": "a", "save": {"every_minutes": 0}}},
        {"version": 1, "manager": {"directory": "a", "on_nonfinite": "error"}},
    ],
)
def test_it_refuses_what_the_loader_refuses(data: dict[str, Any]) -> None:
    assert not accepts(data)
