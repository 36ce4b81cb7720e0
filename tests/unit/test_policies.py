"""Configs and policies as text: each fault by its line and with a way out, and what is taken."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from zoo.entries import weights
from zoo.schema import accepts

from tfckpt.core.inventory import Inventory
from tfckpt.errors import PolicyError, Problem
from tfckpt.planning import make_plan, union_of
from tfckpt.policy import Policy, Source, load_config, load_policy
from tfckpt.policy.yaml_loader import MAX_BYTES, MAX_DEPTH, MAX_VALUES, parse


def write(directory: Path, text: str, name: str = "config.yaml") -> Path:
    path = directory / name
    path.write_text(text, encoding="utf-8")
    return path


def refused(source: Any, env: dict[str, str] | None = None) -> PolicyError:
    with pytest.raises(PolicyError) as caught:
        load_config(source, env or {})
    assert "pydantic" not in str(caught.value)
    assert "Input should" not in str(caught.value)
    return caught.value


# YAML as such: a value, and what it is taken for; or what is said of it

VALUES = [
    ("true", True), ("false", False), ("null", None), ("~", None), ("", None), ("0", 0),
    ("-12", -12), ("+7", 7), ("0.9", 0.9), ("1e-3", 1e-3), ("1E5", 1e5), ("-.5", -0.5),
    ("9223372036854775807", 2**63 - 1), ("'no'", "no"), ('"012"', "012"), ("model/**", "model/**"),
    (r"'re:model/block_(\d+)'", r"re:model/block_(\d+)"), ("12a", "12a"), ("ckpt-900", "ckpt-900"),
    ("|\n  two\n  lines", "two\nlines"), ("[1, a, []]", [1, "a", []]),
]  # fmt: skip


@pytest.mark.parametrize(("text", "value"), VALUES)
def test_a_value_is_what_every_yaml_reader_takes_it_for(text: str, value: object) -> None:
    document = parse(f"a: {text}".encode(), "a.yaml")
    assert document.problems == ()
    assert document.data == {"a": value}
    assert type(document.data["a"]) is type(value)


# What stands after `# !` is in the problem of that line.
REFUSED = r"""
a: no  # ! boolean for some YAML parsers & write false
b: Yes  # ! boolean for some YAML parsers & write true
c: on  # ! boolean for some YAML parsers & write true
d: OFF  # ! boolean for some YAML parsers & write false
e: True  # ! boolean for some YAML parsers & write true
f: 012  # ! different number & '012'
g: 08  # ! different number & '08'
h: 0o14  # ! different number & decimal
i: 0x1F  # ! different number & decimal
j: 1_000  # ! different number & decimal
k: 12:30  # ! different number & '12:30'
l: 1:30:00  # ! different number & decimal
m: 1:30.5  # ! different number & decimal
n: 2024-02-30  # ! a date & '2024-02-30'
o: .nan  # ! not a number & '.nan'
p: -.INF  # ! not a number & '-.INF'
q: NULL  # ! special meaning in YAML & 'NULL'
r: =  # ! special meaning in YAML & '='
s: 9223372036854775808  # ! 64 bits
t: 1e999  # ! too large
u: !!python/name:os.system  # ! is a YAML tag & in quotes
v: !x [1]  # ! is a YAML tag & in quotes
w: &x 1  # ! is a YAML anchor & repeat the value
x: *x  # ! is a YAML alias & in quotes
y: "\0"  # ! a NUL
z: "\ud800"  # ! surrogate
aa: {1: 2}  # ! key must be text & '1'
ab: {? [x] : 2}  # ! key must be text
ac: {<<: {b: 1}}  # ! merge key
ad: {no: 1}  # ! boolean for some YAML parsers & 'no'
ae: {x: 1,
     x: 2}  # ! duplicate key `x`, first on line 31
a: 3  # ! duplicate key `a`, first on line 1
"""


def lines_of(text: str) -> dict[int, list[str]]:
    """Line → what its problem says, by the comments."""
    found = (line.partition("# ! ")[2] for line in text.splitlines())
    return {at: said.split(" & ") for at, said in enumerate(found, 1) if said}


def check(problems: tuple[Problem, ...], text: str) -> None:
    expected = lines_of(text)
    found: dict[int, str] = {}
    for problem in problems:
        found[problem.line] = found.get(problem.line, "") + f"{problem.message} {problem.hint}; "
    assert found.keys() == expected.keys()
    assert list(found) == sorted(found)
    for line, said in expected.items():
        assert not [each for each in said if each not in found[line]], found[line]


def test_values_that_are_refused_are_all_found_at_once_and_explained() -> None:
    text = REFUSED.strip()
    document = parse(text.encode(), "a.yaml")
    check(document.problems, text)
    assert document.data["ae"] == {"x": 1}
    (problem,) = parse(b"a: " + b"1" * 5000, "a.yaml").problems
    assert "64 bits" in problem.message


COLUMN = "keys of one mapping, or items of one list, begin in the same column"
WHOLE = [
    ("", "empty", 1), ("# nothing\n", "empty", 1), ("- 1\n", "must be a mapping", 1),
    ("", "`version: 1`, then `restore: {directory: runs/digits}`", 1),
    ("a: 1\n---\nb: 2\n", "second YAML document", 2), ("a:\n\tb: 1\n", "tab", 2),
    ("a: 1\nb: [1\n", "expected ',' or ']'", 3), ("a: 1\nb: 'x\n", "end of stream", 3),
    ("a: 1\n b: 2\n", "mapping values are not allowed", 2),
    ("a: 1\nb\n  c: 1\n", "the key has no colon", 2),
    ('a: 1\nb: "\\UFFFFFFFF"', "has an invalid number", 2),
    ("%YAML " + "9" * 5000 + ".1\n---\na: 1", "has an invalid number", 1),
    ("a: 1\nb: \x07", "U+0007", 2), (b"a: 1\nb: \xff", "not UTF-8", 2),
    (b"a: 1\nb: \x00", "U+0000", 2), (b"\xef\xbb\xbfa: 1", "byte order mark", 1),
    ("a: 1".encode("utf-16"), "byte order mark", 1), ("a: " + "[" * (MAX_DEPTH + 1), "nested", 1),
    ("a: [" + "1," * MAX_VALUES + "]", "values", 1), (b"a: 1\n" * MAX_BYTES, "larger than", 0),
    ("a:\n  b: 1\n   c: 2\n", COLUMN, 3), ("a:\n    b: 1\n\n  c: 2\n", COLUMN, 4),
    ("  a: 1\nb: 2\n", COLUMN, 2), ("a:\n  - b: 1\n   c: 2\n", COLUMN, 3),
    ("a:\n    - b\n   - c\n", COLUMN, 3), ("a:\n  b 1\n  c: 2\n", "each key has a colon", 3),
    ("a: b: c\n", "in quotes", 1), ("a: 'b' c\n", "in quotes", 1),
    ("exclude: [**/bias]", '"**/bias"', 1), ("exclude: *", '"**/bias"', 1),
    ("exclude:\n  - *.bias", '"**/bias"', 2), (r'exclude: ["re:model/\d+"]', "single quotes", 1),
    ("a: {b: ${C}/d}", "{path: '${ZOO}/ckpt-900'}", 1), ("exclude: [model/[ab]/x]", "in quotes", 1),
    ("exclude: @x", "in quotes", 1),
]  # fmt: skip


@pytest.mark.parametrize(("text", "said", "line"), WHOLE, ids=range(len(WHOLE)))
def test_a_text_that_cannot_be_read_has_one_problem(text, said: str, line: int) -> None:
    with pytest.raises(PolicyError) as caught:
        raise PolicyError(*parse(text if isinstance(text, bytes) else text.encode(), "a").problems)
    (problem,) = caught.value.problems
    assert said in f"{problem.message} {problem.hint}"
    assert problem.line == line


# Configs: every fault at once, each by its line

FAULTS = {
    "sources and policies": r"""version: 1
manager:
  directory: ${RUN_DIR}/checkpoints  # ! RUN_DIR is not set
  save: {every_steps: "500", every_minutes: 10}  # ! expected a whole number, found the text '500'
restore:
  first_of:
    - {directory: a, path: b, policy: finetun}  # ! no policy `finetun`
    - {policy: resume}  # ! neither `path`, `directory` nor `all_of`
    - {path: x, policy: {api: raed, name: q}}  # ! found the text 'raed'
  if_none: initialise  # ! found the text 'initialise'
policies:
  resume:
    assert: consumed
    expect_partial: true  # ! contradicts `assert: consumed`
    training_state: [epoch, batch]  # ! `batch` needs `iterator`
  finetune:
    inclde: ["model/**"]  # ! inclde: unknown key
    include: model/**  # ! expected a list, found the text 'model/**'
    exclude: ["a//b", 're:(?=x)']  # ! 'a//b' has an empty level
    allow_empty: no  # ! `no` is a boolean for some YAML parsers
    min_restored: 012  # ! `012` is a different number
    rename:
      - {checkpoint: "a/**", model: "b/*"}  # ! same wildcards
      - checkpoint: 're:('  # ! rename[1].checkpoint: '(' is not closed
        model: b
      - checkpoint: a
        model: 're:b'  # ! rename[2].model
    match: nam  # ! found the text 'nam'
    assert_: none  # ! assert_: unknown key
    lok: a.json  # ! lok: unknown key
  other:
    on_missing: warn  # ! `assert` is on line 33
    assert: consumed
""",
    "adaptations": """version: 1
restore: {path: zoo/ckpt-1, policy: p}
policies:
  p:
    adapt:
      - {how: rezise, model: a}  # ! found the text 'rezise' did you mean `resize`?
      - {model: a}  # ! the key `how` is missing
      - transpose  # ! expected a mapping, found the text 'transpose'
      - {how: resize, model: a, metod: bicubic}  # ! metod: unknown key did you mean `method`?
      - {how: resize, model: "a//b", method: cubic}  # ! 'a//b' has an empty & or 'nearest'
      - {how: resize, model: a, axes: [0], grid: [2, 2]}  # ! use `axes` or `grid`, not both
      - {how: resize, model: a, prefix: 1}  # ! `prefix` needs `grid`
      - {how: resize, model: a, grid: [2], to_grid: [1, 2]}  # ! must have the same number of sizes
      - {how: pad, model: a}  # ! value: the key is missing
      - {how: pad, model: a, value: true}  # ! initialize, or the name of an initializer, found true
      - {how: pad, model: a, value: 0, before: [-1]}  # ! expected at least 0
      - {how: split, checkpoint: "a/*", model: ["b/*", c], axis: 0}  # ! same wildcards
      - {how: split, checkpoint: a, model: [b], axis: 0}  # ! expected a list of at least 2
      - {how: split, checkpoint: a, model: [b, b], axis: 0}  # ! `model` has b twice
      - {how: split, checkpoint: a, model: [b, c], axis: 0, sizes: [1]}  # ! one size for each name
      - {how: concat, checkpoint: ["a/*", "b/**"], model: "c/*", axis: 0}  # ! same wildcards
      - {how: concat, checkpoint: [a, a], model: c, axis: 0}  # ! `checkpoint` has a twice
      - {how: reshape, model: a, shape: [-1, -1]}  # ! at most one -1
      - {how: cast, model: a, casting: unsafe}  # ! expected 'safe', 'same_kind' or 'any'
      - {how: function, model: a, nam: b}  # ! nam: unknown key did you mean `name`?
      - {how: function, name: b, model: "a//"}  # ! empty level
      - {how: vocabulary, model: a, old: 3, new: "${NO}"}  # ! NO is not set & old: expected text
      - {how: transpose, model: a, axes: []}  # ! expected a list of at least 1
""",
}


@pytest.mark.parametrize("case", FAULTS)
def test_every_fault_of_a_file_is_found_at_once_with_its_line(case, tmp_path: Path) -> None:
    path = write(tmp_path, FAULTS[case])
    error = refused(path)
    check(error.problems, FAULTS[case])
    assert error.file == str(path)
    assert all(line.startswith((f"{path}:", "  ")) for line in str(error).splitlines()[1:])


# One fault each: what is written ! what is said; with !! the published schema refuses it, too.
ALONE = {
    "policies: {p: {%s}}": r"""
assert: consumed, on_unexpected: warn ! contradicts
assert: none, on_missing: error ! contradicts
assert: consumed, on_shape_mismatch: skip ! contradicts
assert: existing_objects_matched, on_shape_mismatch: skip ! contradicts
assert: existing_objects_matched, expect_partial: true, on_unexpected: warn ! on_unexpected: ignore
name: b !! unknown key
include: [] !! at least 1
rename: [{checkpoint: a}] ! rename[0].model: the key is missing
rename: [{checkpoint: a, model: []}] ! rename[0].model: expected
rename: [{checkpoint: a, model: [b, b]}] ! `model` has b twice
assert: nontrivial ! did you mean `nontrivial_match`
on_shape_mismatch: ignore ! 'error' or 'skip'
min_restored: 2 !! expected at most 1
min_restored: 90 ! it is a fraction: 0.9 for 90 %
min_restored: '0.5' ! expected a number, found the text '0.5'
allow_empty: 1 ! expected true or false, found the number 1
match: [] ! `match` is empty
training_state: [callbacks] ! `callbacks` needs `epoch`
build: {model: {shape: [0]}} ! build.model.shape[0]
build: {model: [null, 4]} ! write it as {shape: [null, 4]}
rename: {a: b} ! write a list: [{checkpoint: a, model: b}]
rename: [{from: a, to: b}] ! a rename is {checkpoint: model/old/**, model: model/new/**}
build: {model: {shape: [1], dtype: float}} ! build.model.dtype
optimizer: {slots: keep} ! 'restore' or 'reset'
assert_consumed: true ! write `assert: consumed`
assert_existing_objects_matched: false ! write `assert: none`
by_name: true ! write `match: name`
by_name: false ! leave it out
skip_mismatch: true ! write `on_shape_mismatch: skip`
strict: false ! write `on_missing: warn, on_unexpected: warn`
compile: false ! write `optimizer: reset`
asert_consumed: true ! did you mean `assert_consumed`? write `assert: consumed`
optimizer: none ! write `optimizer: reset`
optimizer: true ! leave it out
slots: reset ! write `optimizer: {slots: reset}`
max_to_keep: 3 ! write `max_to_keep: 3` into `manager`
max_memory: 1GiB ! `verify: none` holds a few at a time
adapt: [{how: cast}] !! the key is missing
""",
    "restore: {%s}": r"""
path: a, assert_consumed: true ! write `policy: {assert: consumed}`
path: a, exclude: [b] ! write `policy: {exclude: [b]}`
path: a, exlude: [b] ! did you mean `exclude`? write `policy: {exclude: [b]}`
path: a, policies: {} ! at the top level
if_none: error ! neither `path`, `directory` nor `all_of`
path: a, select: 3 ! `select` applies to a `directory`, and this source has `path`
path: '' ! expected some text
directory: a, select: bst ! expected latest, best or a checkpoint number
directory: a, select: true ! expected latest, best or a checkpoint number
directory: a, select: -1 ! expected latest, best or a checkpoint number
directory: a, checkpoint_name: a/b ! is not a plain file name
path: a, format: h5 ! format: unknown key
all_of: [{path: a}] ! all_of: `all_of` must be a list of at least two
all_of: [], directory: b ! both `directory` and `all_of`
all_of: [{path: a}, {path: b}], policy: strict ! each of its sources has its own policy
all_of: [{path: a}, {}] ! all_of[1]: a source has neither `path`
all_of: [{path: a}, {all_of: [{path: a}, {path: b}]}] ! cannot have `all_of` itself
all_of: [{path: a}, {path: b, on_damaged: next}] ! cannot be set for a single source of `all_of`
all_of: [{path: c}, {pth: a}] ! all_of[1].pth: unknown key
all_of: [{path: a, policy: {training_state: [epoch]}}, {path: b}] ! has `training_state`
first_of: [] !! at least 1
first_of: [{path: 3}, {path: a}] ! restore.first_of[0].path: expected text, found the number 3
path: a, first_of: [{path: b}] ! unknown key
average: [a, b] ! average the checkpoints in ten lines of Python, docs/transform.md
""",
    "manager: {directory: a, save: {%s}}": r"""
every_steps: 0 !! expected more than 0
every_steps: true ! expected a whole number, found true
every_steps: 1.0e+3 ! write 1000
every: 500 ! did you mean `every_epochs` or `every_minutes` or `every_steps`?
every_minutes: 0 !! every_minutes: expected more than 0, found the number 0
on_signal: SIGTERM ! expected a list, found the text 'SIGTERM'
on_signal: [SIGTRM] ! did you mean `SIGTERM`?
on_signal: [sigint] ! did you mean `SIGINT`?
on_signal: [SIG_DFL] ! 'SIG_DFL' is not a signal on this platform
on_signal: [SIGTERM, SIGKILL] ! save.on_signal[1]: no program can save when it receives SIGKILL
on_signal: [SIGTERM, SIGTERM] ! `on_signal` has SIGTERM twice
on_signal: [SIGTERM], grace_seconds: 0 ! expected more than 0
on_signal: [], grace_seconds: 10 ! `grace_seconds` needs `on_signal`
grace_seconds: 9 ! on_signal: [SIGTERM]
on_exception: true ! SIGINT in `on_signal` saves on Ctrl-C
""",
    "manager: {directory: a, keep: [{%s}]}": r"""
latest: null ! exactly one of `latest`, `best`, `every_n_steps`, `every_n_hours`, `pin`
latest: null, best: null ! this one has none
latest: 3, pin: [1] !! this one has both `latest` and `pin`
latest: 0 ! expected more than 0
best: 2 !! `best` needs `monitor`
best: 2, monitor: score ! `mode` is min if lower is better
best: 2, monitor: val_loss, mode: auto !! expected 'min' or 'max'
best: 2, monitor: '', mode: min ! monitor: expected some text
latest: 2, monitor: val_loss ! `monitor` goes with `best`
latest: 3, mode: min !! `mode` goes with `best`
monitor: val_loss, mode: min ! this one has none
every_n_hours: 0 !! expected more than 0
every_n_steps: 1.5 ! expected a whole number
pin: 12 !! write a list: [12]
pin: [] !! expected a list of at least 1
pin: [3, -1] ! pin[1]: expected at least 0
newest: 1 ! unknown key
every_hours: 12 ! did you mean `every_n_hours`
""",
    "manager: {directory: a, %s}": r"""
every_steps: 5 ! write `save: {every_steps: 5}`
save_every: 7 ! write `save: {every_steps: 7}`
save_freq: 7 ! write `save: {every_steps: 7}`
save_freq: epoch ! write `save: {every_epochs: 1}`
period: 3 ! write `save: {every_epochs: 3}`
dir: a ! did you mean `directory`?
save_best_only: true ! write `keep: [{latest: 3}, {best: 1, monitor: val_loss}]`
monitor: val_loss ! write `keep: [{latest: 3}, {best: 1, monitor: val_loss}]`
exclude: [a] ! write `exclude: [a]` into a policy
keep: 3 ! expected a list, found the number 3
keep: [3] ! keep[0]: expected a mapping
keep: {best: 1, monitor: loss, mode: min} ! write a list: [{best: 1, monitor: 'loss', mode: 'min'}]
durable: 1 ! expected true or false, found the number 1
if_busy: skip ! add `enable_async: true`
enable_async: false, if_busy: skip ! saves are not asynchronous
enable_async: true, if_busy: drop ! expected 'wait' or 'skip'
on_nonfinite: error !! expected 'warn', 'save' or 'refuse'
on_unsavable: warning ! did you mean `warn`
max_to_keep: 3, keep: [{latest: 3}] ! both say
""",
    "%s": r"""
directory: a ! write `manager: {directory: a}` or `restore: {directory: a}`
manager: {keep: []} ! directory: the key is missing
restor: {} !! unknown key
restore: zoo/ckpt-1 ! write it as {path: zoo/ckpt-1}
restore: zoo ! write it as {directory: zoo}
version: 2 ! write `version: 1`
restore: own ! `own` is the directory of the `manager`, and the config has none
manager: {directory: a}, restore: owned !! expected a mapping, found the text 'owned'
manager: {directory: a}, restore: {first_of: [none]} !! expected a mapping, found the text 'none'
policies: {a: {extends: b}, b: {extends: a}} ! a.extends: it extends itself: a → b → a
policies: {aa: {}, b: {extends: a}} ! did you mean `aa`?
policies: {a: {extends: 3}} !! a.extends: expected text
policies: {a: {expect_partial: true}, b: {extends: a, assert: consumed}} ! policies.b.expect_partial
policies: {strict: {}} ! built-in policy
policies: {resume: {}}, restore: {path: a, policy: resum} ! did you mean `resume`
"<x": 2 ! unknown key
""",
}
ONE = [
    (form % line.partition(" !")[0], *line.partition(" !")[2].split(" ", 1))
    for form, lines in ALONE.items()
    for line in lines.strip().splitlines()
]


@pytest.mark.parametrize(("text", "schema", "said"), ONE, ids=[text for text, *_ in ONE])
def test_what_cannot_be_meant_is_refused_in_plain_words(text, schema, said) -> None:
    data = yaml.safe_load(f"{{version: 1, {text}}}")
    assert said in str(refused(data))
    assert not (schema and accepts(data))


MISTAKEN = [
    ({}, "add `version: 1` as the first line"),
    ({"version": 2}, "expected 1, found the number 2"),
    ({"version": True}, "found true"),
    ({"version": 1, 2: 3, "policies": {4: {}}}, "text as a key"),
    ({"version": 1, "\0x": 2, "policies": {"a": {"\0one": 2}}}, "unknown key"),
    *((source, "expected the path of a YAML file, or a mapping") for source in (None, 3, b"a", [])),
]


@pytest.mark.parametrize(("source", "said"), MISTAKEN)
def test_what_no_yaml_would_say_is_refused_in_words(source: Any, said: str, tmp_path) -> None:
    assert said in str(refused(source))
    loop: dict[str, Any] = {"version": 1}
    loop["restore"] = loop
    assert "nested" in str(refused(loop))
    assert f"{tmp_path}/absent.yaml does not exist" in str(refused(tmp_path / "absent.yaml"))
    assert "is a directory, not a config file" in str(refused(tmp_path))
    assert "cannot read the file" in str(refused("a\0b"))


def test_values_in_python_are_refused_alike_and_have_paths_in_place_of_lines() -> None:
    with pytest.raises(PolicyError) as caught:
        Policy(include=["a//b", "ok", "["], api="raed", min_restored=2, nme="x")
    assert len(caught.value.problems) == 5
    assert "include[0]: 'a//b' has an empty level" in str(caught.value)
    with pytest.raises(PolicyError, match="contradicts"):
        Policy(assert_="consumed", expect_partial=True)
    with pytest.raises(PolicyError, match="neither `path`"):
        Source()
    for assertion in (None, "nontrivial_match", "none"):
        policy = Policy(assert_=assertion, on_shape_mismatch="skip")
        assert policy.on_shape_mismatch == "skip"


# What is filled in, and where rules stand


@pytest.mark.parametrize(
    ("text", "env", "filled"),
    [
        ("${RUNS}/a", {"RUNS": "r"}, "r/a"),
        ("${RUNS:-d}/a", {}, "d/a"),
        ("${RUNS:-d}/a", {"RUNS": ""}, "d/a"),
        ("${RUNS:-}a", {}, "a"),
        ("${RUNS:-x:y-z}", {}, "x:y-z"),
        ("${A}${B}", {"A": "${B}", "B": "$$"}, "${B}$$"),
        ("$$HOME", {"HOME": "h"}, "$HOME"),
        ("a$$${A}", {"A": "b"}, "a$b"),
        ("${A}", {"A": "no: [*x"}, "no: [*x"),
    ],
)
def test_variables_are_filled_in_once_after_parsing(text, env, filled) -> None:
    config = load_config({"version": 1, "restore": {"path": text}}, env)
    assert config.restore is not None
    assert config.restore.first_of[0].path == filled


LITERAL = "or a literal `$` as `$$`"
SPACE = "begins or ends with a space"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("${RUNS}/a", "RUNS is not set"),
        ("${EMPTY}/a", "EMPTY is empty"),
        *((text, LITERAL) for text in ("$HOME/a", "${HOME", "${}", "${1A}", "a$")),
        ("~/runs", "`~` is not expanded"),
        ("~", "`~` is not expanded"),
        ("runs ", SPACE),
        ("${BLANK}", f"'runs ' {SPACE}"),
    ],
)
def test_what_would_be_another_directory_than_was_meant_is_an_error(
    tmp_path: Path, text: str, message: str
) -> None:
    path = write(tmp_path, f"version: 1\nrestore:\n  path: '{text}'\n")
    (problem,) = refused(path, {"EMPTY": "", "BLANK": "runs "}).problems
    assert message in problem.message
    assert (problem.line, problem.column) == (3, 9)


def test_files_are_filled_in_and_selectors_are_not() -> None:
    words = {"how": "vocabulary", "model": "re:a$", "old": "${D}/o.txt", "new": "${D}/n.txt"}
    rules = {
        "include": ["re:model/.*$"],
        "exclude": ["model/${A}"],
        "exclude_checkpoint": ["$a"],
        "expect_missing": ["$b"],
        "expect_unexpected": ["$c"],
        "rename": [{"checkpoint": "model/$a", "model": "model/${b}"}],
        "adapt": [words, {"how": "split", "checkpoint": "$a", "model": ["$b", "$c"], "axis": 0}],
    }
    env = {"D": "data"}
    in_config = load_config({"version": 1, "policies": {"include": rules}}, env)
    inline = load_config({"version": 1, "restore": {"path": "a", "policy": rules}}, env)
    policies = [in_config.policies["include"], inline.restore.first_of[0].policy]
    for policy in (*policies, load_policy(rules, env)):
        assert (policy.exclude, policy.include) == (("model/${A}",), ("re:model/.*$",))
        assert policy.rename[0].model == ("model/${b}",)
        filled, split = policy.adapt
        assert (filled.model, filled.old, filled.new) == ("re:a$", "data/o.txt", "data/n.txt")
        assert (split.checkpoint, split.model) == ("$a", ("$b", "$c"))


def test_a_policy_file_is_one_policy_and_its_rules_know_their_lines(tmp_path: Path) -> None:
    text = "exclude: ['nothing/*']\nallow_empty: true\nadapt:\n  - {how: cast, model: a}\n"
    paths = [write(tmp_path, text, f"{name}.yaml") for name in ("one", "two")]
    policies = [load_policy(path, {}) for path in paths]
    cast = [{"how": "cast", "model": "a"}]
    rules = {"exclude": ("nothing/*",), "allow_empty": True, "adapt": cast}
    assert policies[0] == Policy(name="one", **rules)
    assert policies[0].where("exclude", 0) == (1, 11)
    assert policies[0].where("adapt", 0)[0] == 4
    (entry,) = weights(a={"k": (2,)})
    side = Inventory("a", {entry.name: entry})
    united = union_of([make_plan(policy, side, side) for policy in policies])
    messages = [problem.message for problem in united.problems]
    for path in paths:
        assert f"{path}:1:11: a: exclude: 'nothing/*' matches nothing" in messages
    text = "rename:\n- {checkpoint: a/**, model: b/**}\n- {checkpoint: a/k, model: b/k}\n"
    path = write(tmp_path, text)
    (problem,) = make_plan(load_policy(path, {}), side, Inventory("b", {})).problems[:1]
    assert (problem.line, problem.message) == (
        3,
        "rename: 'a/k' renames nothing: rename: 'a/**' in line 2 comes first, and takes 'a/k'",
    )
