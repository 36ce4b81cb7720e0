"""Files and mappings → configs: every fault at once, its place, variables, where rules stand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tfckpt.errors import PolicyError
from tfckpt.policy import Policy, load_config, load_policy

if TYPE_CHECKING:
    from pathlib import Path

BAD = r"""version: 1
manager:
  directory: ${RUN_DIR}/checkpoints
  save: {every_steps: "500", every_minutes: 10}
restore:
  first_of:
    - {directory: a, path: b, policy: finetun}
    - {policy: resume}
    - {path: x, policy: {api: raed, name: q}}
  if_none: initialise
policies:
  resume:
    assert: consumed
    expect_partial: true
    training_state: [epoch, batch]
  finetune:
    inclde: ["model/**"]
    include: model/**
    exclude: ["a//b", 're:(?=x)']
    allow_empty: no
    min_restored: 012
    rename:
      - {checkpoint: "a/**", model: "b/*"}
    match: nam
    assert_: none
    lok: a.json
"""


def write(directory: Path, text: str) -> Path:
    path = directory / "config.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def refused(source: Any, env: dict[str, str] | None = None) -> PolicyError:
    with pytest.raises(PolicyError) as caught:
        load_config(source, env or {})
    return caught.value


def test_every_fault_of_a_file_is_found_at_once_with_its_line(tmp_path: Path) -> None:
    path = write(tmp_path, BAD)
    error = refused(path)
    expected = {
        3: "RUN_DIR is not set",
        4: "expected a whole number, found the text '500'",
        7: "no policy `finetun`",
        8: "neither `path`, `directory`, `average` nor `all_of`",
        9: "found the text 'raed'",
        10: "found the text 'initialise'",
        14: "contradicts `assert: consumed`",
        15: "`batch` needs `iterator`",
        17: "inclde: unknown key",
        18: "expected a list, found the text 'model/**'",
        19: "'a//b' has an empty level",
        20: "`no` is a boolean for some YAML parsers",
        21: "`012` is a different number",
        23: "same wildcards",
        24: "found the text 'nam'",
        25: "assert_: unknown key",
        26: "lok: unknown key",
    }
    lines = str(error).splitlines()
    for line, text in expected.items():
        shown = [one for one in lines if one.startswith(f"{path}:{line}:")]
        assert any(text in one for one in shown), (line, shown)
    assert {problem.line for problem in error.problems} == set(expected)
    assert [p.line for p in error.problems] == sorted(p.line for p in error.problems)
    assert error.file == str(path)


def test_a_contradiction_names_both_lines(tmp_path: Path) -> None:
    text = "version: 1\npolicies:\n  a:\n    on_missing: warn\n    assert: consumed\n"
    (problem,) = refused(write(tmp_path, text)).problems
    assert (problem.line, problem.column) == (4, 17)
    assert "`assert` is on line 5" in problem.message


def test_a_bad_pattern_of_a_rename_has_the_line_of_its_own_side(tmp_path: Path) -> None:
    text = (
        "version: 1\npolicies:\n  a:\n    rename:\n"
        "      - checkpoint: 're:('\n        model: b\n"
        "      - checkpoint: a\n        model: 're:b'\n"
    )
    first, second = refused(write(tmp_path, text)).problems
    assert (first.line, second.line) == (5, 8)
    assert "rename[0].checkpoint: '(' is not closed" in first.message
    assert "rename[1].model" in second.message


BAD_MANAGER = """version: 1
manager:
  directory: a
  save:
    every_minutes: 0
    on_signal:
      - SIGTERM
      - SIGTRM
      - SIGKILL
  keep:
    - latest: 3
      best: 2
    - {}
    - {best: 2}
    - best: 2
      monitor: loss
      mode: auto
    - latest: 3
      mode: min
    - {every_n_hours: -1}
    - {pin: 3}
    - {every_n_steps: 1.5}
  durable: maybe
  enable_async: false
  if_busy: skip
  on_nonfinite: refse
  on_unsavable: save
"""


def test_every_fault_of_a_manager_has_its_line(tmp_path: Path) -> None:
    expected = {
        5: "save.every_minutes: expected more than 0, found the number 0",
        8: "save.on_signal[1]: 'SIGTRM' is not a signal on this platform",
        9: "save.on_signal[2]: no program can save when it receives SIGKILL",
        12: "both `latest` and `best` (`latest` is on line 11)",
        13: "keep[1]: a rule must have exactly one of",
        14: "keep[2]: `best` needs `monitor` and `mode`",
        17: "keep[3].mode: expected 'min' or 'max', found the text 'auto'",
        19: "`mode` goes with `best`",
        20: "keep[5].every_n_hours: expected more than 0",
        21: "keep[6].pin: expected a list, found the number 3",
        22: "keep[7].every_n_steps: expected a whole number",
        23: "durable: expected true or false, found the text 'maybe'",
        25: "saves are not asynchronous (`enable_async` is on line 24)",
        26: "on_nonfinite: expected 'warn', 'save' or 'refuse'",
        27: "on_unsavable: expected 'warn' or 'error'",
    }
    problems = refused(write(tmp_path, BAD_MANAGER)).problems
    assert [problem.line for problem in problems] == list(expected)
    for problem in problems:
        assert expected[problem.line] in problem.message


def test_a_time_of_grace_without_a_signal_has_its_line(tmp_path: Path) -> None:
    text = "version: 1\nmanager:\n  directory: a\n  save:\n    grace_seconds: 9\n"
    (problem,) = refused(write(tmp_path, text)).problems
    assert (problem.line, problem.column) == (5, 20)
    assert "`grace_seconds` needs `on_signal`" in problem.message
    assert "on_signal: [SIGTERM]" in problem.hint


def test_a_mapping_has_paths_in_place_of_lines() -> None:
    error = refused({"version": 1, "restore": {"first_of": [{"path": 3}, {"path": "a"}]}})
    (problem,) = error.problems
    assert "restore.first_of[0].path: expected text, found the number 3" in problem.message
    assert problem.line == 0


@pytest.mark.parametrize("select", [[], {}, [1], True, -1, None])
def test_what_is_no_selection_is_refused(select: Any) -> None:
    error = refused({"version": 1, "restore": {"directory": "a", "select": select}})
    assert "restore.select: expected latest, best or a checkpoint number" in str(error)


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
def test_variables_are_filled_in_once_after_parsing(
    text: str, env: dict[str, str], filled: str
) -> None:
    config = load_config({"version": 1, "restore": {"path": text}}, env)
    assert config.restore is not None
    assert config.restore.first_of[0].path == filled


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("${RUNS}/a", "RUNS is not set"),
        ("${EMPTY}/a", "EMPTY is empty"),
        ("$HOME/a", "or a literal `$` as `$$`"),
        ("${HOME", "or a literal `$` as `$$`"),
        ("${}", "or a literal `$` as `$$`"),
        ("${1A}", "or a literal `$` as `$$`"),
        ("a$", "or a literal `$` as `$$`"),
        ("~/runs", "`~` is not expanded"),
        ("~", "`~` is not expanded"),
        ("runs ", "begins or ends with a space"),
        ("${BLANK}", "'runs ' begins or ends with a space"),
    ],
)
def test_what_would_be_another_directory_than_was_meant_is_an_error(
    tmp_path: Path, text: str, message: str
) -> None:
    path = write(tmp_path, f"version: 1\nrestore:\n  path: '{text}'\n")
    (problem,) = refused(path, {"EMPTY": "", "BLANK": "runs "}).problems
    assert message in problem.message
    assert problem.line == 3


def test_selectors_are_not_filled_in() -> None:
    rules = {
        "include": ["re:model/.*$"],
        "exclude": ["model/${A}"],
        "exclude_checkpoint": ["$a"],
        "expect_missing": ["$b"],
        "expect_unexpected": ["$c"],
        "rename": [{"checkpoint": "model/$a", "model": "model/${b}"}],
    }
    in_config = load_config({"version": 1, "policies": {"include": rules}}, {}).policies["include"]
    inline = load_config({"version": 1, "restore": {"path": "a", "policy": rules}}, {})
    assert inline.restore is not None
    for policy in (in_config, inline.restore.first_of[0].policy, load_policy(rules, {})):
        assert isinstance(policy, Policy)
        assert policy.exclude == ("model/${A}",)
        assert policy.include == ("re:model/.*$",)
        assert policy.rename[0].model == ("model/${b}",)


def test_a_policy_file_is_one_policy(tmp_path: Path) -> None:
    path = tmp_path / "encoder.yaml"
    path.write_text("include: ['model/**']\nassert: none\n", encoding="utf-8")
    policy = load_policy(path, {})
    assert policy == Policy(name="encoder", include=("model/**",), assert_="none")
    assert policy.where("include", 0) == (1, 11)


def test_a_file_that_cannot_be_read_is_a_policy_error(tmp_path: Path) -> None:
    assert f"{tmp_path}/absent.yaml does not exist" in str(refused(tmp_path / "absent.yaml"))
    assert "is a directory, not a config file" in str(refused(tmp_path))
    assert "cannot read the file" in str(refused("a\0b"))


def test_a_mapping_that_holds_itself_is_refused() -> None:
    loop: dict[str, Any] = {"version": 1}
    loop["restore"] = loop
    assert "nested" in str(refused(loop))


def test_keys_of_a_mapping_that_are_no_text_are_refused() -> None:
    assert "text as a key" in str(refused({"version": 1, 2: 3, "policies": {4: {}}}))


@pytest.mark.parametrize("key", ["<x", "<<:x", "", "[0]", "\0one", "\0x"])
def test_an_unknown_key_may_be_spelt_in_any_way(key: str) -> None:
    for source in ({"version": 1, key: 2}, {"version": 1, "policies": {"a": {key: 2}}}):
        assert "unknown key" in str(refused(source))


@pytest.mark.parametrize("source", [None, 3, ["a.yaml"], b"a.yaml", Policy()])
def test_what_is_no_source_at_all_is_refused_in_words(source: Any) -> None:
    assert "expected the path of a YAML file, or a mapping" in str(refused(source))


@pytest.mark.parametrize(
    ("source", "hint"),
    [
        ({"restore": {"path": "a"}}, "add `version: 1` as the first line"),
        ({"manager": {"directory": "a", "keep": {"latest": 3}}}, "write a list: [{latest: 3}]"),
        (
            {"manager": {"directory": "a", "keep": {"best": 1, "monitor": "loss", "mode": "min"}}},
            "write a list: [{best: 1, monitor: 'loss', mode: 'min'}]",
        ),
        ({"manager": {"directory": "a", "keep": [{"pin": 12}]}}, "write a list: [12]"),
        (
            {"restore": {"first_of": {"path": "a", "select": None}}},
            "write a list: [{path: 'a', select: null}]",
        ),
    ],
)
def test_the_hint_is_what_to_write(source: dict[str, Any], hint: str) -> None:
    declared = source if "restore" in source and "path" in source["restore"] else {"version": 1}
    assert hint in str(refused({**declared, **source}))


def test_a_key_that_went_says_what_to_write() -> None:
    restore = {"path": "ckpt", "policy": {"max_memory": "1GiB"}}
    said = str(refused({"version": 1, "restore": restore}))
    assert "max_memory: unknown key" in said
    assert "`verify: none` holds a few at a time" in said
    config = {"version": 1, "manager": {"directory": "a", "save": {"on_exception": True}}}
    said = str(refused(config))
    assert "manager.save.on_exception: unknown key" in said
    assert "`on_signal: [SIGINT]` saves on Ctrl-C" in said
