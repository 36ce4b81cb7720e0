"""Policies and configs as Python values: presets, contradictions, defaults, what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from tfckpt.errors import PolicyError
from tfckpt.policy import (
    Config,
    Keep,
    Manager,
    Policy,
    Restore,
    Save,
    Source,
)
from tfckpt.policy.config import OnlySource
from tfckpt.policy.policy import OptimizerRules


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
        (lambda: Policy(exclude=["a", "re:("]), "exclude[1]: '(' is not closed"),
        (lambda: Policy(rename=[{"checkpoint": "a/*", "model": "b"}]), "same wildcards"),
        (lambda: Policy(rename=[{"checkpoint": "a"}]), "rename[0].model: the key is missing"),
        (lambda: Policy(rename=[{"checkpoint": "a", "model": []}]), "rename[0].model: expected"),
        (
            lambda: Policy(rename=[{"checkpoint": "a", "model": ["b", "b"]}]),
            "`model` has b twice",
        ),
        (lambda: Policy(rename=[{"checkpoint": "a/*", "model": ["b/*", "c"]}]), "same wildcards"),
        (
            lambda: Policy(rename=[{"checkpoint": "re:(", "model": "b"}]),
            "rename[0].checkpoint: '(' is not closed",
        ),
        (lambda: Policy(assert_="nontrivial"), "did you mean `nontrivial_match`"),
        (lambda: Policy(min_restored=1.5), "expected at most 1"),
        (lambda: Policy(min_restored="0.5"), "expected a number, found the text '0.5'"),
        (lambda: Policy(allow_empty=1), "expected true or false, found the number 1"),
        (lambda: Policy(match=[]), "`match` is empty"),
        (lambda: Policy(match=["name", "name"]), "twice"),
        (lambda: Policy(training_state=["epoch", "batch"]), "`batch` needs `iterator`"),
        (lambda: Policy(training_state=["callbacks"]), "`callbacks` needs `epoch`"),
        (lambda: Policy(lock=""), "lock: expected some text"),
        (lambda: Policy(build={"model": {"shape": [0]}}), "build.model.shape[0]"),
        (lambda: Policy(build={"model": {"shape": [1], "dtype": "float"}}), "build.model.dtype"),
        (lambda: OptimizerRules(slots="keep"), "'restore' or 'reset'"),
        (Source, "neither `path`, `directory`, `average` nor `all_of`"),
        (lambda: Source(path="a", directory="b"), "both `path` and `directory`"),
        (
            lambda: Source(path="a", select=3),
            "`select` applies to a `directory`, and this source has `path`",
        ),
        (lambda: Source(path=""), "expected some text"),
        (
            lambda: Source(directory="a", select="bst"),
            "expected latest, best or a checkpoint number",
        ),
        (
            lambda: Source(directory="a", select=True),
            "expected latest, best or a checkpoint number",
        ),
        (lambda: Source(directory="a", checkpoint_name="a/b"), "is not a plain file name"),
        (lambda: Source(path="a", format="h5"), "format: unknown key"),
        (lambda: Source(average=["a"]), "average: `average` must be a list of at least two"),
        (lambda: Source(average="a"), "average: expected a list, found the text 'a'"),
        (lambda: Source(average={"directory": "a"}), "average.latest: the key is missing"),
        (lambda: Source(average={"directory": "a", "latest": 1}), "expected at least 2"),
        (
            lambda: Source(average=["a", "b"], weights=[1]),
            "`weights` has 1 numbers, `average` 2 checkpoints",
        ),
        (lambda: Source(average=["a", "b"], weights=[1, 0]), "weights[1]: expected more than 0"),
        (
            lambda: Source(average={"directory": "a", "latest": 2}, weights=[1, 1]),
            "`weights` needs a list of checkpoints under `average`",
        ),
        (
            lambda: Source(path="a", weights=[1]),
            "`weights` needs a list of checkpoints under `average`",
        ),
        (
            lambda: Source(average=["a", "b"], select=1),
            "`select` applies to a `directory`, and this source has `average`",
        ),
        (lambda: Source(average=["a", "b"], path="c"), "both `path` and `average`"),
        (lambda: Source(all_of=[]), "all_of: `all_of` must be a list of at least two"),
        (lambda: Source(all_of=[{"path": "a"}]), "all_of: `all_of` must be a list of at least two"),
        (lambda: Source(all_of=[], directory="b"), "both `directory` and `all_of`"),
        (
            lambda: Source(all_of=[{"path": "a"}] * 2, policy="strict"),
            "each of its sources has its own policy",
        ),
        (lambda: Source(all_of=[{}]), "all_of[0]: a source has neither `path`"),
        (
            lambda: Source(all_of=[{"all_of": [{"path": "a"}, {"path": "b"}]}]),
            "all_of[0]: a source of `all_of` cannot have `all_of` itself",
        ),
        (
            lambda: Source(all_of=[{"path": "a", "on_damaged": "next"}]),
            "all_of[0].on_damaged: `on_damaged` cannot be set for a single source of `all_of`",
        ),
        (lambda: Restore(first_of=[]), "at least 1"),
        (
            lambda: OnlySource(if_none="error"),
            "neither `path`, `directory`, `average` nor `all_of`",
        ),
        (lambda: OnlySource(all_of=[{"pth": "a"}]), "all_of[0].pth: unknown key"),
        (lambda: Restore(path="a", first_of=[{"path": "b"}]), "unknown key"),
        (lambda: Save(every_steps=0), "expected more than 0"),
        (lambda: Save(every_steps=True), "expected a whole number, found true"),
        (lambda: Save(every_minutes=0), "every_minutes: expected more than 0, found the number 0"),
        (lambda: Save(every_minutes=float("inf")), "expected a finite number"),
        (lambda: Save(every_minutes=float("nan")), "expected a finite number"),
        (lambda: Save(every_minutes="5"), "expected a number, found the text '5'"),
        (lambda: Save(every_minutes=True), "expected a number, found true"),
        (lambda: Save(on_signal="SIGTERM"), "expected a list, found the text 'SIGTERM'"),
        (lambda: Save(on_signal=[15]), "on_signal[0]: expected text, found the number 15"),
        (lambda: Save(on_signal=["SIGTRM"]), "did you mean `SIGTERM`?"),
        (lambda: Save(on_signal=["sigint"]), "did you mean `SIGINT`?"),
        (lambda: Save(on_signal=["TERM"]), "'TERM' is not a signal on this platform"),
        (lambda: Save(on_signal=["SIG_DFL"]), "'SIG_DFL' is not a signal on this platform"),
        (lambda: Save(on_signal=["SIGTERM", "SIGKILL"]), "on_signal[1]: no program can save"),
        (lambda: Save(on_signal=["SIGSTOP"]), "no program can save when it receives SIGSTOP"),
        (lambda: Save(on_signal=["SIGSEGV"]), "no program can save when it receives SIGSEGV"),
        (lambda: Save(on_signal=["SIGTERM", "SIGTERM"]), "`on_signal` has SIGTERM twice"),
        (lambda: Save(on_signal=["SIGTERM"], grace_seconds=0), "expected more than 0"),
        (lambda: Save(grace_seconds=10), "`grace_seconds` needs `on_signal`"),
        (lambda: Save(on_signal=[], grace_seconds=10), "`grace_seconds` needs `on_signal`"),
        (Keep, "exactly one of `latest`, `best`, `every_n_steps`, `every_n_hours`, `pin`"),
        (lambda: Keep(latest=None), "this one has none"),
        (lambda: Keep(latest=1, pin=[2]), "pin: a rule must have exactly one of"),
        (lambda: Keep(latest=1, pin=[2]), "this one has both `latest` and `pin`"),
        (lambda: Keep(latest=0), "expected more than 0"),
        (lambda: Keep(best=2), "`best` needs `monitor` and `mode`"),
        (lambda: Keep(best=2, mode="min"), "`best` needs `monitor`"),
        (lambda: Keep(best=2, monitor="val_loss"), "`mode` is min if lower is better"),
        (lambda: Keep(best=2, monitor="val_loss", mode="auto"), "expected 'min' or 'max'"),
        (lambda: Keep(best=2, monitor="", mode="min"), "monitor: expected some text"),
        (lambda: Keep(latest=2, monitor="val_loss"), "`monitor` goes with `best`"),
        (lambda: Keep(every_n_hours=2, mode="min"), "`mode` goes with `best`"),
        (lambda: Keep(monitor="val_loss", mode="min"), "this one has none"),
        (lambda: Keep(every_n_steps=0.5), "expected a whole number"),
        (lambda: Keep(every_n_hours=0), "expected more than 0"),
        (lambda: Keep(every_n_hours=float("inf")), "expected a finite number"),
        (lambda: Keep(pin=12), "expected a list, found the number 12"),
        (lambda: Keep(pin=[]), "expected a list of at least 1"),
        (lambda: Keep(pin=[3, -1]), "pin[1]: expected at least 0"),
        (lambda: Keep(newest=1), "unknown key"),
        (
            lambda: Manager(directory="a", keep=[{"every_hours": 12}]),
            "did you mean `every_n_hours`",
        ),
        (lambda: Manager(directory="a", keep=[3]), "keep[0]: expected a mapping"),
        (lambda: Manager(directory="a", keep={"latest": 3}), "keep: expected a list"),
        (lambda: Manager(directory="a", durable=1), "expected true or false, found the number 1"),
        (lambda: Manager(directory="a", enable_async="yes"), "expected true or false"),
        (lambda: Manager(directory="a", if_busy="skip"), "add `enable_async: true`"),
        (
            lambda: Manager(directory="a", enable_async=False, if_busy="wait"),
            "saves are not asynchronous",
        ),
        (
            lambda: Manager(directory="a", enable_async=True, if_busy="drop"),
            "expected 'wait' or 'skip'",
        ),
        (lambda: Manager(directory="a", on_nonfinite="refse"), "did you mean `refuse`"),
        (lambda: Manager(directory="a", on_unsavable="warning"), "did you mean `warn`"),
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
