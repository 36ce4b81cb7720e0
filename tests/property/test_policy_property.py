"""No text and no mapping does anything but load, or be refused by the one error."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tfckpt.errors import PolicyError
from tfckpt.policy import load_config, load_policy


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
