"""Text → data with places: what is read as what, and what is refused at which line."""

from __future__ import annotations

import pytest
import yaml

from tfckpt.errors import PolicyError, Problem
from tfckpt.policy.yaml_loader import MAX_BYTES, MAX_DEPTH, MAX_VALUES, parse


def problems(text: str | bytes) -> tuple[Problem, ...]:
    raw = text if isinstance(text, bytes) else text.encode()
    try:
        return parse(raw, "a.yaml").problems
    except PolicyError as error:
        return error.problems


def test_data_is_what_yaml_says_and_every_place_is_known() -> None:
    text = "version: 1\nrestore:\n  first_of:\n    - {path: a/b, select: 3}\n    - path: 'c'\n"
    document = parse(text.encode(), "a.yaml")
    assert document.data == yaml.safe_load(text)
    assert document.values["version",] == (1, 10)
    line = text.splitlines()[3]
    assert document.values["restore", "first_of", 0, "select"] == (4, line.index("3") + 1)
    assert document.keys["restore", "first_of", 0, "select"] == (4, line.index("select") + 1)
    assert document.values["restore", "first_of", 1, "path"] == (5, 13)


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
