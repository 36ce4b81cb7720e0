"""Policies go through YAML unchanged, and no text does anything but load or be refused."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml
from hypothesis import given
from hypothesis import strategies as st

from tfckpt.errors import PolicyError
from tfckpt.policy import Policy, load_config, load_policy

SELECTORS = st.lists(
    st.sampled_from(["**", "model/**", "**/bias", "a/[!x]?", r"re:model/b_(\d+)/.*", "step", "$a"]),
    max_size=3,
)
RENAMES = st.lists(
    st.sampled_from(
        [
            {"checkpoint": "model/a/**", "model": "model/b/**"},
            {"checkpoint": r"re:x(\d+)", "model": r"y\1"},
            {"checkpoint": "model/c/*", "model": ["model/d/*", "model/e/*"]},
        ]
    ),
    max_size=2,
)
ADAPT = st.lists(
    st.sampled_from(
        [
            {"how": "cast", "model": "model/**", "casting": "safe"},
            {"how": "transpose", "model": r"re:model/b_\d+/k", "axes": [1, 0]},
            {"how": "reshape", "model": "a", "shape": [-1, 2]},
            {"how": "slice", "model": "a", "start": [0, 1]},
            {"how": "pad", "model": "a", "value": 0.5},
            {"how": "pad", "model": "a", "value": "initialize", "before": [1]},
            {"how": "resize", "model": "a", "grid": [2, 3], "to_grid": [4, 6], "prefix": 1},
            {"how": "resize", "model": "a", "axes": [0], "method": "nearest"},
            {"how": "vocabulary", "model": "a", "old": "o.txt", "new": "n.txt", "oov": 1},
            {"how": "tile", "model": "a", "axis": 0, "scale": "mean"},
            {"how": "split", "checkpoint": "a/*", "model": ["b/*", "c/*"], "axis": -1},
            {"how": "concat", "checkpoint": ["b/*", "c/*"], "model": "a/*", "axis": 0},
            {"how": "function", "name": "ours", "model": "a"},
            {"how": "function", "name": "ours", "checkpoint": ["b", "c"], "model": "a"},
        ]
    ),
    max_size=3,
)
SHAPE = st.fixed_dictionaries({"shape": st.lists(st.none() | st.integers(1, 99), max_size=3)})
ACTIONS = st.sampled_from(["error", "warn", "ignore"])
OPTIMIZER = st.fixed_dictionaries(
    {},
    optional={
        "slots": st.sampled_from(["restore", "reset"]),
        "iterations": st.sampled_from(["restore", "reset"]),
        "hyperparameters": st.sampled_from(["restore", "config"]),
    },
)
FIELDS = {
    "api": st.sampled_from(["restore", "read"]),
    "expect_partial": st.booleans(),
    "include": SELECTORS.filter(bool),
    "exclude": SELECTORS,
    "exclude_checkpoint": SELECTORS,
    "expect_missing": SELECTORS,
    "expect_unexpected": SELECTORS,
    "rename": RENAMES,
    "adapt": ADAPT,
    "on_shape_mismatch": st.sampled_from(["error", "skip"]),
    "on_dtype_mismatch": st.sampled_from(["error", "cast"]),
    "optimizer": OPTIMIZER,
    "min_restored": st.none() | st.floats(0, 1),
    "allow_empty": st.booleans(),
    "match": st.sampled_from(["name", "structure", ["name", "structure"], ["structure", "name"]]),
    "verify": st.sampled_from(["none", "checksums", "values"]),
    "build": st.dictionaries(
        st.sampled_from(["model", "encoder", "no"]),
        SHAPE | st.lists(SHAPE, max_size=2) | st.dictionaries(st.just("image"), SHAPE, min_size=1),
        max_size=2,
    ),
    "training_state": st.lists(st.sampled_from(["epoch", "iterator", "seeds"]), unique=True)
    | st.just(["epoch", "batch", "iterator", "callbacks"]),
}
WITH_ACTIONS = {**FIELDS, "on_missing": ACTIONS, "on_unexpected": ACTIONS}
WITH_ASSERT = {
    **FIELDS,
    "expect_partial": st.just(False),
    "on_shape_mismatch": st.just("error"),
    "assert_": st.sampled_from(
        ["consumed", "existing_objects_matched", "nontrivial_match", "none"]
    ),
}


@given(
    st.fixed_dictionaries({}, optional=WITH_ACTIONS)
    | st.fixed_dictionaries({}, optional=WITH_ASSERT)
)
def test_a_policy_goes_through_yaml_unchanged(fields: dict[str, Any]) -> None:
    policy = Policy(**fields)
    text = yaml.safe_dump(policy.model_dump(mode="json", exclude={"name"}))
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "policy.yaml"
        path.write_text(text, encoding="utf-8")
        assert load_policy(path, {}) == policy


def refusal(load: Callable[..., object], source: object) -> PolicyError | None:
    try:
        load(source, {"A": "b"})
    except PolicyError as error:
        return error
    return None


KEYS = [
    *("version", "manager", "restore", "policies", "first_of", "path", "directory", "policy"),
    *("include", "rename", "build", "match", "optimizer", "assert", "on_missing", "keep", "save"),
    *("select", "min_restored", "training_state", "checkpoint", "model", "shape", "latest", "a"),
    *("best", "monitor", "mode", "pin", "every_n_hours", "on_signal", "grace_seconds", "if_busy"),
]
YAML = [
    *("-", "{", "}", "[", "]", ",", "1", "no", "012", "${A}", "$", "*x", "&x", "!t", "<<:"),
    *("'re:('", "a/**", "null", "?", "|"),
]
PIECE = st.sampled_from([*(f"{key}: " for key in KEYS), *YAML, " ", "\n", "\n  ", "\n    "])


NEAR = st.lists(PIECE, max_size=40).map(lambda pieces: f"version: 1\n{''.join(pieces)}".encode())


@given(st.text(max_size=200).map(str.encode) | st.binary(max_size=100) | NEAR | NEAR)
def test_no_text_raises_anything_but_a_policy_error(raw: bytes) -> None:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "config.yaml"
        path.write_bytes(raw)
        for load in (load_config, load_policy):
            error = refusal(load, path)
            assert error is None or str(error).startswith(str(path))
            assert error is None or str(error).encode()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(["a", "**", "${B}"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4)
    ),
    max_leaves=20,
)


@given(st.dictionaries(st.sampled_from(KEYS), JSON, max_size=5))
def test_no_mapping_raises_anything_but_a_policy_error(data: dict[str, Any]) -> None:
    refusal(load_config, {**data, "version": 1})
    refusal(load_policy, data)
