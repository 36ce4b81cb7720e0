"""Each adaptation against NumPy or TensorFlow, from the rule to the array."""

from __future__ import annotations

import itertools
import math
import tempfile
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import tfckpt
from tfckpt.core.dtypes import can_cast, holds
from tfckpt.core.inventory import Entry, Inventory, Role
from tfckpt.live.adapt import adapted
from tfckpt.planning import Status, make_plan
from tfckpt.policy import Policy
from tfckpt.policy.adapt import PlanContext
from tfckpt.stored.io.word_list import read_words

SIZES = st.integers(1, 4)
SHAPES = st.lists(SIZES, min_size=1, max_size=4).map(tuple)
REAL = st.sampled_from(["float16", "float32", "float64", "bfloat16"])
DTYPES = st.sampled_from(["float32", "float64", "int32", "uint8", "bfloat16", "complex64", "bool"])
SEEDS = st.integers(0, 2**32 - 1)


def numbers(shape: tuple[int, ...], dtype: str = "float32", seed: int = 0) -> Any:
    drawn = np.random.default_rng(seed).uniform(0, 100, shape)
    return drawn.astype(tf.as_dtype(dtype).as_numpy_dtype)


def entry(name: str, value: Any) -> Entry:
    return Entry(name, Role.WEIGHT, tf.as_dtype(value.dtype).name, value.shape, value.nbytes)


def run(
    rules: list[dict[str, Any]],
    stored: dict[str, Any],
    live: dict[str, Any],
    known: PlanContext | None = None,
) -> dict[str, Any]:
    """What becomes of the stored arrays, by live name; ``live`` has arrays of the shapes here."""
    sides = [
        Inventory("here", {name: entry(name, value) for name, value in side.items()})
        for side in (stored, live)
    ]
    plan = make_plan(Policy(adapt=rules), *sides, known)
    assert plan.ok, str(plan)
    assert {step.status for step in plan.steps} <= {Status.ADAPTED, Status.LOADED}
    made = {}
    for step in plan.steps:
        values = [stored[each.name].copy() for each in step.reads]
        variable = tf.Variable(live[step.name])
        made[step.name] = adapted(step, values, variable) if step.changes else values[0]
        assert made[step.name].shape == live[step.name].shape
        assert made[step.name].dtype == live[step.name].dtype
    return made


def one(rule: dict[str, Any], value: Any, like: Any, known: PlanContext | None = None) -> Any:
    return run([{"model": "x", **rule}], {"x": value}, {"x": like}, known)["x"]


def empty(shape: Any, dtype: Any) -> Any:
    return np.zeros(shape, dtype)


def transposed(value: Any, data: Any) -> Any:
    axes = data.draw(st.none() | st.permutations(range(value.ndim)))
    return np.transpose(value, axes), [{} if axes is None else {"axes": list(axes)}]


def reshaped(value: Any, data: Any) -> Any:
    shape = value.shape
    to = data.draw(st.sampled_from([(-1,), (1, *shape), (*shape[::-1], 1), shape[::-1]]))
    return np.reshape(value, to), [{}, {"shape": list(to)}]


def sliced(value: Any, data: Any) -> Any:
    size = tuple(data.draw(st.integers(1, n)) for n in value.shape)
    start = tuple(data.draw(st.integers(0, n - m)) for n, m in zip(value.shape, size, strict=True))
    return tf.slice(value, start, size).numpy(), [{"start": list(start)}]


def padded(value: Any, data: Any) -> Any:
    assume(value.dtype.name not in ("bool", "complex64"))
    around = [data.draw(st.tuples(st.integers(0, 2), st.integers(0, 2))) for _ in value.shape]
    rule = {"value": 7, "before": [before for before, _ in around]}
    return np.pad(value, around, constant_values=7), [rule]


def tiled(value: Any, data: Any) -> Any:
    times = [data.draw(st.integers(1, 3)) for _ in value.shape]
    return np.tile(value, times), [{}, {"times": times}]


OPERATIONS = {
    "transpose": transposed,
    "reshape": reshaped,
    "slice": sliced,
    "pad": padded,
    "tile": tiled,
}


@pytest.mark.parametrize("how", OPERATIONS)
@given(SHAPES, DTYPES, SEEDS, st.data())
@settings(max_examples=60)
def test_values_are_numpys(how: str, shape: Any, dtype: str, seed: int, data: Any) -> None:
    value = numbers(shape, dtype, seed)
    expected, rules = OPERATIONS[how](value, data)
    for rule in rules:
        made = one({"how": how, **rule}, value, np.zeros_like(expected))
        np.testing.assert_array_equal(made, expected)


@given(SHAPES, SEEDS, st.sampled_from(["initialize", "ones", "glorot_uniform"]), st.data())
@settings(max_examples=30)
def test_pad_with_what_is_there_or_an_initializer(
    shape: Any, seed: int, fill: str, data: Any
) -> None:
    import keras

    value = numbers(shape, "float32", seed)
    here = numbers(tuple(n + data.draw(st.integers(0, 2)) for n in shape), "float32", seed + 1)
    keras.utils.set_random_seed(seed)
    expected = here.copy()
    if fill != "initialize":
        expected = np.array(keras.initializers.get(fill)(here.shape))
    box = tuple(map(slice, shape))
    expected[box] = value
    keras.utils.set_random_seed(seed)
    known = PlanContext(initializers=frozenset({fill}))
    made = one({"how": "pad", "value": fill}, value, here, known)
    np.testing.assert_array_equal(made, expected)


METHODS = st.sampled_from(["bilinear", "bicubic", "nearest"])


@given(METHODS, REAL, SEEDS, st.lists(st.integers(1, 6), min_size=4, max_size=4), SHAPES)
@settings(max_examples=60)
def test_resize_of_an_image_like_value(
    method: str, dtype: str, seed: int, sizes: list[int], rest: Any
) -> None:
    value = numbers((*sizes[:2], *rest), dtype, seed)
    image = tf.cast(value, "float32" if method != "nearest" else dtype)
    image = tf.reshape(image, (1, *sizes[:2], -1))
    expected = tf.image.resize(image, sizes[2:], method).numpy().astype(value.dtype)
    expected = expected.reshape((*sizes[2:], *rest))
    rule = {"how": "resize", "method": method, "axes": [0, 1]}
    np.testing.assert_array_equal(one(rule, value, expected), expected)
    if sizes[0] != sizes[2] and sizes[1] != sizes[3]:
        del rule["axes"]
        np.testing.assert_array_equal(one(rule, value, expected), expected)


@given(METHODS, SEEDS, st.lists(st.integers(1, 5), min_size=4, max_size=4), SHAPES, st.data())
@settings(max_examples=60)
def test_resize_of_position_embeddings(
    method: str, seed: int, grids: list[int], ends: Any, data: Any
) -> None:
    above = data.draw(st.sampled_from([(), (1,), (2,)]))
    prefix, width = data.draw(st.integers(0, 2)), ends[-1]
    old, new = grids[:2], grids[2:]
    value = numbers((*above, prefix + math.prod(old), width), "float32", seed)
    grid = value[..., prefix:, :].reshape((-1, *old, width))
    expected = tf.image.resize(grid, new, method).numpy().reshape((*above, -1, width))
    expected = np.concatenate([value[..., :prefix, :], expected], axis=-2)
    rule = {"how": "resize", "method": method, "grid": old, "to_grid": new, "prefix": prefix}
    made = one(rule, value, expected)
    np.testing.assert_allclose(made, expected, rtol=1e-5, atol=1e-4)
    np.testing.assert_array_equal(made[..., :prefix, :], value[..., :prefix, :])


@given(SEEDS, st.integers(2, 9), st.integers(2, 9))
def test_resize_of_a_line_is_interpolation_between_centres(seed: int, old: int, new: int) -> None:
    value = numbers((old, 3), "float32", seed)
    at = (np.arange(new) + 0.5) * old / new - 0.5
    expected = np.stack([np.interp(at, np.arange(old), column) for column in value.T], axis=1)
    for rule in ({"axes": [0]}, {"grid": [old]}):
        made = one({"how": "resize", **rule}, value, empty((new, 3), np.float32))
        np.testing.assert_allclose(made, expected, rtol=1e-4)


WORDS = st.lists(st.text("abc", min_size=1, max_size=2), min_size=1, max_size=6, unique=True)
MISSING = st.sampled_from(["initialize", "zeros", "mean", "ones"])


@given(WORDS, WORDS, MISSING, st.integers(0, 2), st.integers(0, 2), st.booleans(), SEEDS)
@settings(max_examples=60)
def test_vocabulary(
    old: list[str],
    new: list[str],
    missing: str,
    before: int,
    oov: int,
    first: bool,
    seed: int,
) -> None:
    assume(set(old) & set(new))
    value = numbers((before + len(old) + oov, 3), "float32", seed)
    here = numbers((before + len(new) + oov, 3), "float32", seed + 1)
    words = value[before : before + len(old)]
    lost = {
        "initialize": lambda row: here[row],
        "zeros": lambda _: np.zeros(3),
        "ones": lambda _: np.ones(3),
        "mean": lambda _: words.astype(np.float64).mean(0),
    }[missing]
    expected = np.empty_like(here)
    for row in range(len(here)):
        word = row - before
        if word < 0:
            expected[row] = value[row]
        elif word >= len(new):
            expected[row] = value[len(value) - (len(here) - row)]
        else:
            found = new[word] in old
            expected[row] = words[old.index(new[word])] if found else lost(row)
    rule = {"how": "vocabulary", "old": "o", "new": "n", "missing": missing, "before": before}
    rule |= {"oov": oov, "axis": 0 if first else -1}
    known = PlanContext({"o": tuple(old), "n": tuple(new)}, initializers=frozenset({"ones"}))
    turn = (lambda a: a) if first else np.transpose
    made = one(rule, np.ascontiguousarray(turn(value)), np.ascontiguousarray(turn(here)), known)
    np.testing.assert_allclose(turn(made), expected, rtol=1e-6)


@given(WORDS, WORDS)
@settings(max_examples=30)
def test_rows_go_where_tensorflow_maps_them(old: list[str], new: list[str]) -> None:
    assume(set(old) & set(new))
    with tempfile.TemporaryDirectory() as directory:
        files = [str(Path(directory, name)) for name in ("old.txt", "new.txt")]
        for file, words in zip(files, (old, new), strict=True):
            Path(file).write_text("\n".join(words), encoding="utf-8")
        rows, _ = tf.raw_ops.GenerateVocabRemapping(
            new_vocab_file=files[1],
            old_vocab_file=files[0],
            new_vocab_offset=0,
            num_new_vocab=len(new),
        )
        known = PlanContext({file: read_words(file) for file in files})
    rule = {"how": "vocabulary", "old": files[0], "new": files[1], "missing": "zeros"}
    value = np.arange(1, len(old) + 1, dtype="float32")
    made = one(rule, value, empty(len(new), "float32"), known)
    np.testing.assert_array_equal(made, np.append(value, 0)[rows])


@given(SEEDS, st.integers(1, 3))
@settings(max_examples=20)
def test_an_inflated_kernel_sees_a_still_film_as_the_flat_one_sees_its_image(
    seed: int, depth: int
) -> None:
    kernel = numbers((3, 3, 2, 4), "float32", seed) / 100
    image = numbers((1, 6, 6, 2), "float32", seed + 1) / 100
    rule = {"how": "tile", "axis": 0, "scale": "mean"}
    inflated = one(rule, kernel, empty((depth, 3, 3, 2, 4), np.float32))
    film = np.repeat(image[:, None], depth, axis=1)
    flat = tf.nn.conv2d(image, kernel, 1, "VALID")
    deep = tf.nn.conv3d(film, inflated, [1] * 5, "VALID")
    np.testing.assert_allclose(deep[:, 0], flat, rtol=1e-4)


@given(SHAPES, DTYPES, SEEDS, st.data())
def test_split_is_tensorflows_and_concat_its_inverse(
    shape: Any, dtype: str, seed: int, data: Any
) -> None:
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    sizes = data.draw(st.lists(SIZES, min_size=2, max_size=4))
    whole = list(shape)
    whole[axis] = sum(sizes)
    value = numbers(tuple(whole), dtype, seed)
    parts = dict(zip("abcd", np.split(value, np.cumsum(sizes)[:-1], axis), strict=False))
    names = list(parts)
    rule = {"how": "split", "checkpoint": "x", "model": names, "axis": axis}
    for more in ({}, {"sizes": sizes}):
        made = run([{**rule, **more}], {"x": value}, parts)
        for name in names:
            np.testing.assert_array_equal(made[name], parts[name])
    rule = {"how": "concat", "checkpoint": names, "model": "x", "axis": axis}
    np.testing.assert_array_equal(run([rule], parts, {"x": value})["x"], value)


@tfckpt.register_adaptation("test: product")
def product(*factors: Any) -> Any:
    return np.linalg.multi_dot(factors) if len(factors) > 1 else factors[0].T


@given(st.lists(SIZES, min_size=3, max_size=5), SEEDS)
def test_a_function_takes_all_its_values(sizes: list[int], seed: int) -> None:
    pairs = itertools.pairwise(sizes)
    factors = [numbers(pair, "float64", seed + i) for i, pair in enumerate(pairs)]
    stored = {f"f{i}": factor for i, factor in enumerate(factors)}
    rule = {"how": "function", "name": "test: product", "checkpoint": list(stored), "model": "x"}
    known = PlanContext(functions=frozenset({"test: product"}))
    expected = np.linalg.multi_dot(factors)
    made = run([rule], stored, {"x": expected}, known)
    np.testing.assert_array_equal(made["x"], expected)


NUMBERS = ["bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64",
           "float16", "float32", "float64", "complex64", "complex128"]  # fmt: skip


@pytest.mark.parametrize("casting", ["safe", "same_kind", "any"])
def test_the_castings_are_numpys(casting: str) -> None:
    for old in NUMBERS:
        for new in NUMBERS:
            said = np.can_cast(old, new, "unsafe" if casting == "any" else casting)
            assert can_cast(old, new, casting) == said, (old, new)
    bfloat16 = np.dtype(ml_dtypes.bfloat16)
    for other in NUMBERS:
        assert can_cast("bfloat16", other, "safe") == np.can_cast(bfloat16, other, "safe"), other
        assert can_cast(other, "bfloat16", "safe") == np.can_cast(other, bfloat16, "safe"), other


@given(st.sampled_from(NUMBERS[1:]), st.integers(-(2**66), 2**66) | st.floats(-1e39, 1e39))
def test_a_type_holds_what_numpy_reads_back(dtype: str, number: float) -> None:
    if dtype.startswith(("float", "complex")):
        with np.errstate(all="ignore"):
            assert holds(dtype, number) == bool(np.isfinite(np.array(number, object).astype(dtype)))
    else:
        limits = np.iinfo(dtype)
        assert holds(dtype, number) == (
            number == int(number) and limits.min <= number <= limits.max
        )


@given(st.sampled_from(NUMBERS), st.sampled_from(NUMBERS), SHAPES, SEEDS)
def test_a_cast_is_numpys_astype(old: str, new: str, shape: Any, seed: int) -> None:
    assume(old != new)
    value = numbers(shape, old, seed)
    rule = {"how": "cast", "casting": "any"}
    with np.errstate(all="ignore"):
        real = value.real if new[:3] not in {"com", "boo"} else value
        expected = real.astype(new)
    np.testing.assert_array_equal(one(rule, value, expected), expected)


INFINITE = (float("nan"), float("inf"), 3e9, -3e9, 2.0**31)


def test_what_a_type_cannot_hold_is_refused_and_its_last_numbers_are_within_it() -> None:
    beyond = [*((number, "int32") for number in INFINITE), (2.0**63, "int64"), (-1.0, "uint8")]
    same_kind = [(1e6, "float16"), (1e300, "float32")]
    for number, to in beyond + same_kind:
        rule = {"how": "cast", **({} if (number, to) in same_kind else {"casting": "any"})}
        with pytest.raises(tfckpt.RestoreError, match=f"{to} cannot hold"):
            one(rule, np.array([1.0, number]), np.zeros(2, to))
    last = [(2.0**31 - 1, "int32"), (-(2.0**31), "int32"), (-(2.0**63), "int64"), (255.9, "uint8")]
    for number, to in last:
        made = one({"how": "cast", "casting": "any"}, np.array([number]), np.zeros(1, to))
        assert made.tolist() == [int(number)]
