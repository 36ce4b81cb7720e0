"""Each adaptation against NumPy or TensorFlow, from the rule to the array."""

from __future__ import annotations

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
from tfckpt.live.adapt import adapted, read_words
from tfckpt.planning import Status, make_plan
from tfckpt.policy import Policy
from tfckpt.policy.adapt import PlanContext

SIZES = st.integers(1, 4)
SHAPES = st.lists(SIZES, min_size=1, max_size=4).map(tuple)
DTYPES = st.sampled_from(["float32", "float64", "int32", "uint8", "bfloat16", "complex64", "bool"])
SEEDS = st.integers(0, 2**32 - 1)
KNOWN = PlanContext({"o": ("a", "b", "c"), "n": ("c", "x", "a", "y")}, ["test: product"], ["ones"])


def numbers(shape: Any, dtype: str = "float32", seed: int = 0) -> Any:
    drawn = np.random.default_rng(seed).uniform(0, 100, shape)
    return drawn.astype(tf.as_dtype(dtype).as_numpy_dtype)


def run(rules: list[Any], stored: dict[str, Any], live: dict[str, Any], known: Any = KNOWN) -> Any:
    """What becomes of the stored arrays, by live name; ``live`` has arrays of the shapes here."""
    sides = [
        Inventory("", {n: Entry(n, Role.WEIGHT, tf.as_dtype(v.dtype).name, v.shape, v.nbytes)
                       for n, v in side.items()})
        for side in (stored, live)
    ]  # fmt: skip
    plan = make_plan(Policy(adapt=rules), *sides, known)
    assert plan.ok, str(plan)
    assert {step.status for step in plan.steps} <= {Status.ADAPTED, Status.LOADED}
    made = {}
    for step in plan.steps:
        values = [stored[each.name].copy() for each in step.reads]
        made[step.name] = adapted(step, values, tf.Variable(live[step.name]))
        assert made[step.name].shape == live[step.name].shape
        assert made[step.name].dtype == live[step.name].dtype
    return made


def one(rule: dict[str, Any], value: Any, like: Any, known: Any = KNOWN) -> Any:
    return run([{"model": "x", **rule}], {"x": value}, {"x": like}, known)["x"]


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


def inflated(value: Any, data: Any) -> Any:
    """As a kernel of images becomes one of films, whose sum over time is the same."""
    assume(value.dtype in ("float32", "float64"))
    axis, depth = data.draw(st.integers(0, value.ndim)), data.draw(SIZES)
    made = np.repeat(np.expand_dims(value, axis) / value.dtype.type(depth), depth, axis)
    return made, [{"axis": axis, "scale": "mean"}]


OPERATIONS = {
    ("transpose", transposed), ("reshape", reshaped), ("slice", sliced), ("pad", padded),
    ("tile", tiled), ("tile", inflated),
}  # fmt: skip


@pytest.mark.parametrize(("how", "expect"), sorted(OPERATIONS, key=str))
@given(SHAPES, DTYPES, SEEDS, st.data())
@settings(max_examples=60)
def test_values_are_numpys(how: str, expect: Any, shape: Any, dtype: str, seed, data: Any) -> None:
    value = numbers(shape, dtype, seed)
    expected, rules = expect(value, data)
    for rule in rules:
        made = one({"how": how, **rule}, value, np.zeros_like(expected))
        np.testing.assert_array_equal(made, expected)


@pytest.mark.parametrize("fill", ["ones", "glorot_uniform"])
def test_pad_draws_the_whole_by_an_initializer(fill: str) -> None:
    import keras

    keras.utils.set_random_seed(5)
    expected = np.array(keras.initializers.get(fill)((4, 4)))
    expected[:3, :2] = value = numbers((3, 2))
    keras.utils.set_random_seed(5)
    rule, known = {"how": "pad", "value": fill}, PlanContext(initializers=[fill])
    np.testing.assert_array_equal(one(rule, value, expected, known), expected)


METHODS = st.sampled_from(["bilinear", "bicubic", "nearest"])
REAL = st.sampled_from(["float16", "float32", "float64", "bfloat16"])
GRIDS = st.lists(st.integers(1, 6), min_size=4, max_size=4)


@given(METHODS, REAL, SEEDS, GRIDS, SHAPES)
@settings(max_examples=60)
def test_resize_is_tensorflows(method: str, dtype: str, seed: int, grids: Any, rest: Any) -> None:
    old, new = grids[:2], grids[2:]
    value = numbers((*old, *rest), dtype, seed)
    image = tf.reshape(tf.cast(value, dtype if method == "nearest" else "float32"), (1, *old, -1))
    expected = tf.image.resize(image, new, method).numpy().astype(value.dtype)
    expected = expected.reshape((*new, *rest))
    rule = {"how": "resize", "method": method}
    np.testing.assert_array_equal(one({**rule, "axes": [0, 1]}, value, expected), expected)
    if all(map(int.__ne__, old, new)):
        np.testing.assert_array_equal(one(rule, value, expected), expected)
    positions = numbers((2, 1 + old[0] * old[1], 3), seed=seed)  # after a token
    grid = tf.image.resize(positions[:, 1:].reshape((2, *old, 3)), new, method).numpy()
    expected = np.concatenate([positions[:, :1], grid.reshape((2, -1, 3))], axis=1)
    made = one({**rule, "grid": old, "to_grid": new, "prefix": 1}, positions, expected)
    np.testing.assert_allclose(made, expected, rtol=1e-5, atol=1e-4)


@given(SEEDS, st.integers(2, 9), st.integers(2, 9))
@settings(max_examples=30)
def test_resize_of_a_line_is_interpolation_between_centres(seed: int, old: int, new: int) -> None:
    value = numbers((old, 3), "float32", seed)
    at = (np.arange(new) + 0.5) * old / new - 0.5
    expected = np.stack([np.interp(at, np.arange(old), column) for column in value.T], axis=1)
    for rule in ({"axes": [0]}, {"grid": [old]}):
        made = one({"how": "resize", **rule}, value, np.zeros((new, 3), np.float32))
        np.testing.assert_allclose(made, expected, rtol=1e-4)


WORDS = st.lists(st.text("abc", min_size=1, max_size=2), min_size=1, max_size=6, unique=True)
MISSING = st.sampled_from(["initialize", "zeros", "mean", "ones"])


@given(WORDS, WORDS, MISSING, st.integers(0, 2), st.integers(0, 2), st.booleans())
@settings(max_examples=60)
def test_rows_go_where_tensorflow_maps_their_words(
    tmp_path_factory, old, new, missing: str, before: int, oov: int, first: bool
) -> None:
    assume(set(old) & set(new))
    files = [tmp_path_factory.mktemp("words") / name for name in ("old.txt", "new.txt")]
    for file, words in zip(files, (old, new), strict=True):
        file.write_text("\n".join(words), encoding="utf-8")
    names = [str(file) for file in files]
    rows, _ = tf.raw_ops.GenerateVocabRemapping(
        new_vocab_file=names[1], old_vocab_file=names[0], new_vocab_offset=0, num_new_vocab=len(new)
    )
    value, here = (numbers((before + len(each) + oov, 3), seed=len(each)) for each in (old, new))
    of_words = value[before : before + len(old)]
    lost = {"initialize": here[before : before + len(new)], "zeros": 0.0, "ones": 1.0}
    lost["mean"] = of_words.astype(np.float64).mean(0)
    kept = np.where((rows.numpy() < 0)[:, None], lost[missing], of_words[rows.numpy()])
    expected = np.concatenate([value[:before], kept, value[before + len(old) :]])
    rule = {"how": "vocabulary", "old": names[0], "new": names[1], "missing": missing}
    rule |= {"before": before, "oov": oov, "axis": 0 if first else -1}
    known = PlanContext({name: read_words(name) for name in names}, (), ["ones"])
    turn = np.asarray if first else np.transpose
    made = one(rule, np.ascontiguousarray(turn(value)), np.ascontiguousarray(turn(here)), known)
    np.testing.assert_allclose(turn(made), expected, rtol=1e-6)


@given(SHAPES, DTYPES, SEEDS, st.data())
def test_split_is_numpys_and_concat_its_inverse(shape: Any, dtype: str, seed: int, data) -> None:
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    sizes = data.draw(st.lists(SIZES, min_size=2, max_size=4))
    whole = list(shape)
    whole[axis] = sum(sizes)
    value = numbers(whole, dtype, seed)
    parts = dict(zip("abcd", np.split(value, np.cumsum(sizes)[:-1], axis), strict=False))
    rule = {"how": "split", "checkpoint": "x", "model": [*parts], "axis": axis}
    for more in ({}, {"sizes": sizes}):
        made = run([{**rule, **more}], {"x": value}, parts)
        for name, part in parts.items():
            np.testing.assert_array_equal(made[name], part)
    rule = {"how": "concat", "checkpoint": [*parts], "model": "x", "axis": axis}
    np.testing.assert_array_equal(run([rule], parts, {"x": value})["x"], value)


@tfckpt.register_adaptation("test: product")
def product(*factors: Any) -> Any:
    return np.linalg.multi_dot(factors)


def test_a_function_takes_all_its_values() -> None:
    stored = {name: numbers((3, 3), seed=seed) for seed, name in enumerate("cab")}
    rule = {"how": "function", "name": "test: product", "checkpoint": [*stored], "model": "x"}
    expected = np.linalg.multi_dot([*stored.values()])
    np.testing.assert_array_equal(run([rule], stored, {"x": expected})["x"], expected)


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
        within = number == int(number) and limits.min <= number <= limits.max
        assert holds(dtype, number) == within


@given(st.sampled_from(NUMBERS), st.sampled_from(NUMBERS), SHAPES, SEEDS)
def test_a_cast_is_numpys_astype(old: str, new: str, shape: Any, seed: int) -> None:
    assume(old != new)
    value = numbers(shape, old, seed)
    with np.errstate(all="ignore"):
        real = value.real if new[:3] not in {"com", "boo"} else value
        expected = real.astype(new)
    made = one({"how": "cast", "casting": "any"}, value, expected)
    np.testing.assert_array_equal(made, expected)


BEYOND = [
    *((number, "int32", "any") for number in (np.nan, np.inf, 3e9, -3e9, 2.0**31)),
    *((2.0**63, "int64", "any"), (-1.0, "uint8", "any")),
    *((1e6, "float16", "same_kind"), (1e300, "float32", "same_kind")),
]


def test_what_a_type_cannot_hold_is_refused_and_its_last_numbers_are_within_it() -> None:
    for number, to, casting in BEYOND:
        with pytest.raises(tfckpt.RestoreError, match=f"{to} cannot hold"):
            one({"how": "cast", "casting": casting}, np.array([1.0, number]), np.zeros(2, to))
    last = [(2.0**31 - 1, "int32"), (-(2.0**31), "int32"), (-(2.0**63), "int64"), (255.9, "uint8")]
    for number, to in last:
        made = one({"how": "cast", "casting": "any"}, np.array([number]), np.zeros(1, to))
        assert made.tolist() == [int(number)]
