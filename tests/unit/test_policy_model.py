"""Policies and configs as Python values: presets, contradictions, defaults, what is refused."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import pytest

from tfckpt.errors import PolicyError
from tfckpt.policy import (
    STRICT,
    Config,
    InputSpec,
    Keep,
    Manager,
    OptimizerRules,
    Policy,
    Rename,
    Restore,
    Save,
    Source,
)


@pytest.mark.parametrize(
    ("fields", "missing", "unexpected"),
    [
        ({}, "error", "error"),
        ({"assert_": "consumed"}, "error", "error"),
        ({"assert_": "existing_objects_matched"}, "error", "warn"),
        ({"assert_": "nontrivial_match"}, "warn", "warn"),
        ({"assert_": "none"}, "warn", "warn"),
        ({"expect_partial": True}, "ignore", "ignore"),
        ({"expect_partial": True, "assert_": "existing_objects_matched"}, "error", "ignore"),
        ({"expect_partial": True, "assert_": "nontrivial_match"}, "ignore", "ignore"),
        ({"expect_partial": True, "on_missing": "error"}, "error", "ignore"),
        ({"on_missing": "warn"}, "warn", "error"),
        ({"on_unexpected": "ignore"}, "error", "ignore"),
        ({"assert_": "consumed", "on_missing": "error"}, "error", "error"),
    ],
)
def test_presets(fields: dict[str, Any], missing: str, unexpected: str) -> None:
    policy = Policy(**fields)
    assert (policy.on_missing, policy.on_unexpected) == (missing, unexpected)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"assert_": "consumed", "expect_partial": True}, ["expect_partial", "consumed"]),
        ({"assert_": "consumed", "on_unexpected": "warn"}, ["on_unexpected: warn", "consumed"]),
        ({"assert_": "none", "on_missing": "error"}, ["on_missing: error", "assert: none"]),
        (
            {"assert_": "consumed", "on_shape_mismatch": "skip"},
            ["on_shape_mismatch: skip", "assert: consumed"],
        ),
        (
            {"assert_": "existing_objects_matched", "on_shape_mismatch": "skip"},
            ["on_shape_mismatch: skip", "assert: existing_objects_matched"],
        ),
        (
            {
                "assert_": "existing_objects_matched",
                "expect_partial": True,
                "on_unexpected": "warn",
            },
            ["on_unexpected: warn", "expect_partial", "on_unexpected: ignore"],
        ),
    ],
)
def test_a_contradiction_names_both_sides(fields: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(PolicyError) as caught:
        Policy(**fields)
    assert "contradicts" in str(caught.value)
    assert all(word in str(caught.value) for word in words)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: Policy(inclde=["a"]), "did you mean `include`"),
        (lambda: Policy(include=[]), "at least 1"),
        (lambda: Policy(include="model/**"), "expected a list, found the text 'model/**'"),
        (lambda: Policy(include=["a//b"]), "include[0]: 'a//b' has an empty level"),
        (lambda: Policy(exclude=["a", "re:("]), "exclude[1]: '(' is never closed"),
        (lambda: Policy(rename=[{"checkpoint": "a/*", "model": "b"}]), "same wildcards"),
        (lambda: Policy(rename=[{"checkpoint": "a"}]), "rename[0].model: the key is missing"),
        (
            lambda: Policy(rename=[{"checkpoint": "re:(", "model": "b"}]),
            "rename[0].checkpoint: '(' is never closed",
        ),
        (lambda: Policy(assert_="nontrivial"), "did you mean `nontrivial_match`"),
        (lambda: Policy(min_restored=1.5), "expected at most 1"),
        (lambda: Policy(min_restored="0.5"), "expected a number, found the text '0.5'"),
        (lambda: Policy(allow_empty=1), "expected true or false, found the number 1"),
        (lambda: Policy(match=[]), "nothing to match by"),
        (lambda: Policy(match=["name", "name"]), "twice"),
        (lambda: Policy(training_state=["epoch", "batch"]), "not supported by this release"),
        (lambda: Policy(training_state=["callbacks"]), "not supported by this release"),
        (lambda: Policy(adapt=[]), "`adapt` is not supported by this release"),
        (lambda: Policy(lock="a"), "`lock` is not supported by this release"),
        (lambda: Policy(build={"model": {"shape": [0]}}), "build.model.shape[0]"),
        (lambda: Policy(build={"model": {"shape": [1], "dtype": "float"}}), "build.model.dtype"),
        (lambda: OptimizerRules(slots="keep"), "'restore' or 'reset'"),
        (Source, "neither `path` nor `directory`"),
        (lambda: Source(path="a", directory="b"), "both `directory` and `path`"),
        (lambda: Source(path="a", select=3), "`path` is one artefact"),
        (lambda: Source(path=""), "expected some text"),
        (lambda: Source(directory="a", select="best"), "expected latest or the number"),
        (lambda: Source(directory="a", select=True), "expected latest or the number"),
        (lambda: Source(directory="a", checkpoint_name="a/b"), "no plain file name"),
        (lambda: Source(path="a", format="h5"), "`format` is not supported by this release"),
        (lambda: Restore(first_of=[]), "at least 1"),
        (lambda: Restore(if_none="error"), "neither `path` nor `directory`"),
        (lambda: Restore(all_of=[{"path": "a"}]), "`all_of` is not supported by this release"),
        (lambda: Restore(path="a", first_of=[{"path": "b"}]), "unknown key"),
        (lambda: Save(every_steps=0), "expected more than 0"),
        (lambda: Save(every_steps=True), "expected a whole number, found true"),
        (lambda: Save(every_minutes=5), "not supported by this release"),
        (lambda: Save(on_signal=["SIGTERM"]), "not supported by this release"),
        (lambda: Keep(latest=1, best=2), "`best` is not supported by this release"),
        (lambda: Manager(directory="a", keep=[{"every_n_hours": 12}]), "not supported by this"),
        (lambda: Manager(directory="a", enable_async=True), "not supported by this release"),
        (lambda: Manager(directory="a", max_to_keep=3, keep=[{"latest": 3}]), "both say"),
        (Manager, "directory: the key is missing"),
        (lambda: Config(version=2), "expected 1, found the number 2"),
        (lambda: Config(version=True), "found true"),
        (lambda: Config(version=1, policies={"strict": {}}), "built-in policy"),
        (
            lambda: Config(
                version=1,
                policies={"resume": {}},
                restore=Restore(first_of=(Source(path="a", policy="resum"),)),
            ),
            "did you mean `resume`",
        ),
    ],
)
def test_what_cannot_be_meant_is_refused_in_plain_words(make: Any, text: str) -> None:
    with pytest.raises(PolicyError) as caught:
        make()
    assert text in str(caught.value)
    assert "pydantic" not in str(caught.value)
    assert "Input should" not in str(caught.value)


@pytest.mark.parametrize("assertion", [None, "nontrivial_match", "none"])
def test_shapes_may_be_skipped_where_no_assertion_wants_every_variable(assertion: Any) -> None:
    assert Policy(assert_=assertion, on_shape_mismatch="skip").on_shape_mismatch == "skip"


def test_every_fault_of_a_value_is_found_at_once() -> None:
    with pytest.raises(PolicyError) as caught:
        Policy(include=["a//b", "ok", "["], api="raed", min_restored=2, nme="x")
    assert len(caught.value.problems) == 5


def test_lists_become_tuples_and_words_become_lists_of_one() -> None:
    policy = Policy(include=["model/**"], match="name", rename=[Rename(checkpoint="a", model="b")])
    assert policy.include == ("model/**",)
    assert policy.match == ("name",)
    assert policy.rename == (Rename(checkpoint="a", model="b"),)


def test_defaults_are_strict() -> None:
    assert Policy(name="strict") == STRICT
    assert STRICT.include == ("**",)
    assert STRICT.verify == "checksums"
    assert not STRICT.allow_empty
    assert Source(path=Path("zoo/ckpt-1")) == Source(path="zoo/ckpt-1", policy="strict")


def test_policies_are_values() -> None:
    policy = Policy(exclude=["model/head/**"], assert_="none")
    assert policy == Policy(exclude=("model/head/**",), assert_="none")
    assert policy != Policy(exclude=("model/head/**",))
    assert {policy: 1}[copy.deepcopy(policy)] == 1
    assert pickle.loads(pickle.dumps(policy)) == policy
    assert Policy(**policy.model_dump()) == policy
    assert (policy.file, policy.where("exclude", 0)) == ("", (0, 0))
    with pytest.raises(ValueError, match="frozen"):
        policy.api = "read"


def test_input_specs_are_one_a_list_or_named() -> None:
    one = InputSpec(shape=(None, 28, 28, 1))
    build = Policy(
        build={
            "model": {"shape": [None, 28, 28, 1]},
            "generator": [{"shape": [None, 28, 28, 1]}, one],
            "encoder": {"image": one, "shape": {"shape": [2], "dtype": "int32"}},
        }
    ).build
    assert build == {
        "model": one,
        "generator": (one, one),
        "encoder": {"image": one, "shape": InputSpec(shape=(2,), dtype="int32")},
    }


def test_both_spellings_of_how_many_to_keep() -> None:
    assert Manager(directory="a", keep=[{"latest": 3}, {"latest": 5}]).latest == 5
    assert Manager(directory="a", max_to_keep=3).latest == 3
    assert Manager(directory="a", max_to_keep=None).latest is None


def test_a_config_finds_the_policy_of_each_source() -> None:
    config = Config(
        version=1,
        policies={"resume": Policy(assert_="consumed")},
        restore=Restore(
            first_of=(
                Source(path="a", policy="resume"),
                Source(path="b", policy=Policy(api="read")),
                Source(path="c"),
            )
        ),
    )
    assert config.restore is not None
    found = [config.policy_of(source) for source in config.restore.first_of]
    assert found == [Policy(name="resume", assert_="consumed"), Policy(api="read"), STRICT]
