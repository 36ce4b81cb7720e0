"""`tfckpt inspect` and `tfckpt diff`, and the statistics that they show."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest
from zoo.command_line import document, run

from tfckpt.tools.statistics import BINS, Distance, difference, statistics

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


BLOCKS = 3


@pytest.fixture(scope="module")
def prefix(tmp_path_factory: pytest.TempPathFactory) -> str:
    import tensorflow as tf

    def block(n: int) -> tf.train.Checkpoint:
        return tf.train.Checkpoint(
            kernel=tf.Variable(np.arange(12, dtype="float32").reshape(3, 4) + n),
            bias=tf.Variable(tf.zeros(4)),
        )

    model = tf.train.Checkpoint(
        **{f"block_{n}": block(n) for n in range(BLOCKS)},
        odd=tf.Variable([np.nan, np.inf, -1.0, 0.0]),
        half=tf.Variable([1.0, 3.0], dtype=tf.bfloat16),
        great=tf.Variable([2**62 + 1, 0], dtype=tf.int64),
        words=tf.Variable(["a\x1b[31m", "b" * 300]),
    )
    directory = tmp_path_factory.mktemp("zoo")
    return str(tf.train.Checkpoint(model=model).write(f"{directory}/ckpt-1"))


def lines(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


def test_at_a_terminal_blocks_that_are_alike_are_one(prefix: str) -> None:
    found = lines(run("inspect", prefix, terminal=True).out)
    assert ["block_{0…2}/", "6", "values", "192", "B"] in found
    assert ["kernel", "weight", "float32", "(3,", "4)", "×3", "144", "B"] in found


def test_statistics_are_those_of_numpy(prefix: str) -> None:
    found = document("inspect", prefix, "--values")["statistics"]
    kernel = np.arange(12, dtype="float64") + 2
    got = found["model/block_2/kernel"]
    assert (got["count"], got["zeros"], got["nonfinite"]) == (12, 0, 0)
    assert (got["least"], got["greatest"]) == (2, 13)
    assert got["mean"] == pytest.approx(kernel.mean())
    assert got["std"] == pytest.approx(kernel.std())
    assert got["histogram"] == [1] * 12
    odd = found["model/odd"]
    assert (odd["count"], odd["nonfinite"], odd["zeros"]) == (4, 2, 1)
    assert (odd["least"], odd["greatest"], odd["mean"]) == (-1, 0, -0.5)
    assert found["model/half"]["mean"] == 2
    assert found["model/great"]["greatest"] == 2**62 + 1
    assert found["model/words"] is None


ODD = {
    "great": np.array([1e16, 1e16 + 2, 1e16 + 4]),
    "long": np.array([2**60, 2**60 + 1]),
    "tiny": np.array([5e-324, 1e-323]),
    "most": np.array([np.finfo("float64").max, -np.finfo("float64").max]),
    "unsigned": np.array([2**64 - 1, 2**64 - 2], "uint64"),
    "none": np.zeros((0, 3), "float32"),
    "nan": np.full(3, np.nan, "float32"),
    "complex": np.array([3 + 4j, 0j]),
    "flags": np.array([True, False]),
    "eight": np.array([0.5, 448], ml_dtypes.float8_e4m3fn),
}


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> str:
    import tensorflow as tf

    model = tf.train.Checkpoint(
        **{name: tf.Variable(value) for name, value in ODD.items()},
        table=tf.lookup.experimental.MutableHashTable(tf.string, tf.int64, -1),
        vars=[tf.Variable(float(n)) for n in range(12)],
    )
    directory = tmp_path_factory.mktemp("odd")
    return str(tf.train.Checkpoint(model=model).write(f"{directory}/ckpt-1"))


@pytest.mark.parametrize("person", [False, True])
def test_no_number_is_too_large_or_too_small_for_statistics(odd: str, person: bool) -> None:
    ended = run("inspect", odd, "--values", terminal=person)
    assert (ended.status, ended.err) == (0, "")
    words = " ".join(ended.out.split())
    assert "model/great 1e+16 1e+16 1e+16 1.63 0%" in words
    assert "model/long 1.15e+18 1.15e+18 1.15e+18 0.5 0%" in words
    statistics = document("inspect", odd, "--values")["statistics"]
    for name in ODD.keys() - {"none", "nan"}:
        assert sum(statistics[f"model/{name}"]["histogram"]) == ODD[name].size


def test_what_is_no_tensor_is_found_and_said_to_be_none(odd: str) -> None:
    assert "model/table" in run("inspect", odd).out
    for selector in ("**/table", "model/table"):
        ended = run("inspect", odd, "--name", selector)
        assert ended.status == 0
        assert ended.out.splitlines() == [
            "model/table  object",
            "not a tensor, so it has no numbers to show",
        ]
    assert document("inspect", odd, "--name", "**/table")["data"] == {"model/table": None}


@pytest.mark.parametrize("view", [[], ["--keys"], ["--values"], ["--name", "model/vars/*"]])
def test_every_view_lists_names_by_their_numbers(odd: str, view: list[str]) -> None:
    words = [line[0] for line in lines(run("inspect", odd, *view).out) if line]
    found = [word for word in words if word.startswith("model/vars/") and word[-1].isdigit()]
    assert found == [f"model/vars/{n}" for n in range(12)]


def test_a_value_that_is_damaged_does_not_hide_the_others(prefix: str, tmp_path: Path) -> None:
    from tfckpt.stored.bundles.bundle import Bundle

    with Bundle.open(prefix) as bundle:
        entry = bundle.entries["model/block_1/kernel/.ATTRIBUTES/VARIABLE_VALUE"]
    for end in (".index", ".data-00000-of-00001"):
        content = bytearray(open(prefix + end, "rb").read())  # noqa: SIM115, PTH123
        if "data" in end:
            content[entry.offset] ^= 1
        (tmp_path / f"ckpt-1{end}").write_bytes(content)
    found = document("inspect", tmp_path / "ckpt-1", "--values", status=1)["statistics"]
    assert "checksum" in found["model/block_1/kernel"]["error"]
    assert found["model/block_2/kernel"]["count"] == 12
    ended = run("inspect", tmp_path / "ckpt-1", "--values")
    assert ended.status == 1
    assert "model/block_1/kernel" in ended.err


def test_a_value_is_printed(prefix: str) -> None:
    ended = run("inspect", prefix, "--name", "model/block_*/kernel")
    assert ended.out.startswith("model/block_0/kernel  float32 (3, 4)\n[[ 0.  1.  2.  3.]\n")
    assert ended.out.count("model/block_") == BLOCKS
    data = document("inspect", prefix, "--name", "model/block_1/bias")["data"]
    assert data == {"model/block_1/bias": [0, 0, 0, 0]}
    data = document("inspect", prefix, "--name", r"re:model/(half|odd)")["data"]
    assert data["model/half"] == np.array([1, 3], ml_dtypes.bfloat16).tolist()
    assert data["model/odd"] == [None, None, -1, 0]


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--name", "model/blok_1/*"], "matches no value; did you mean 'model/block_1/"),
        (["--name", "a/**b"], "**"),
        (["--name", "model/odd", "--slice", "0"], "`tfckpt convert PATH FILE.npz --include GLOB`"),
        (["--graph"], "--keys shows the path of each value"),
        (["--model", "train:build"], "`tfckpt plan PATH --model MODULE:CALLABLE` shows"),
        (["--values", "--keys"], "--keys: not allowed with argument --values"),
    ],
)
def test_what_makes_no_sense_is_misuse(flags: list[str], says: str, prefix: str) -> None:
    ended = run("inspect", prefix, *flags)
    assert ended.status == 2
    assert says in ended.err
    assert "Traceback" not in ended.err


def test_more_than_a_program_should_read_as_json_is_refused(
    prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tfckpt.cli.inspect.MAX_ELEMENTS", 11)
    ended = run("inspect", prefix, "--name", "model/block_0/kernel", "--json")
    assert ended.status == 2
    assert "tfckpt convert PATH FILE.npz" in ended.err


def test_the_header_is_broken_between_its_items(tmp_path: Path) -> None:
    import tensorflow as tf

    import tfckpt

    config = {"version": 1, "manager": {"directory": str(tmp_path)}}
    metrics = {f"val_{word}": 0.25 for word in ("accuracy", "loss", "precision", "recall", "auc")}
    path = tfckpt.from_config(config, v=tf.Variable(1.0)).save(metrics=metrics)
    head = run("inspect", path).out.split("\n\n")[0].splitlines()
    assert head[0] == f"{path}:"
    assert max(map(len, head[1:])) <= 80
    items = " ".join(head[1:]).split(",")
    assert {f"{name} 0.25" for name in metrics} <= {item.strip() for item in items}
    assert all(item.strip() in "\n".join(head) for item in items)


RANDOM = np.random.default_rng(6)
ONE, OTHER = RANDOM.normal(size=(2, 6, 4)).astype("float32")


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., str]:
    """Writes a checkpoint of plain TensorFlow with these values."""
    import tensorflow as tf

    def make(name: str, **values: Any) -> str:
        tree = tf.train.Checkpoint()
        for path, value in values.items():
            at = tree
            *parents, last = path.split("__")
            for part in parents:
                if not hasattr(at, part):
                    setattr(at, part, tf.train.Checkpoint())
                at = getattr(at, part)
            setattr(at, last, tf.Variable(value))
        return str(tree.write(f"{tmp_path}/{name}"))

    return make


def kinds(found: Any) -> set[tuple[str, str | None, str | None]]:
    return {
        (one["kind"], one["a"] and one["a"]["name"], one["b"] and one["b"]["name"])
        for one in found["differences"]
    }


def test_each_kind_of_difference(write: Callable[..., str]) -> None:
    double = np.float64(1)
    a = write(
        "a", m__w=ONE, m__old=[1.0, 2.0, 3.0], m__s=np.ones(3), m__t=np.float32(1), m__k=OTHER
    )
    b = write("b", m__w=ONE + 1, m__new=[4.0, 5.0, 6.0], m__s=np.ones(4), m__t=double, m__k=OTHER)
    found = document("diff", a, b, status=1)
    assert kinds(found) == {
        ("only_a", "m/old", None),
        ("only_b", None, "m/new"),
        ("shape", "m/s", "m/s"),
        ("dtype", "m/t", "m/t"),
        ("value", "m/w", "m/w"),
    }
    assert found["equal"] == 1
    text = run("diff", a, b).out
    assert "only in a" in text
    assert "float64 (3) → float64 (4)" in text


def test_how_far_apart_values_are(write: Callable[..., str]) -> None:
    changed = ONE.copy()
    changed[2, 1] += 0.25
    a, b = write("a", w=ONE, n=[np.nan, 1.0]), write("b", w=changed, n=[np.nan, np.inf])
    w, n = document("diff", a, b, "--values", status=1)["differences"]
    if w["a"]["name"] == "n":
        w, n = n, w
    assert w["differing"] == 1
    assert w["largest"] == pytest.approx(0.25, rel=1e-5)
    scale = max(np.abs(ONE).max(), np.abs(changed).max())
    assert w["relative"] == pytest.approx(0.25 / scale, rel=1e-5)
    assert (n["differing"], n["largest"], n["relative"]) == (1, None, None)
    rows = [line.split() for line in run("diff", a, b, "--values").out.splitlines()]
    assert ["w", "float32", "(6,", "4)", "1", "0.25"] in [row[:6] for row in rows]


def test_a_renamed_layer_has_moved_but_for_its_zeros(write: Callable[..., str]) -> None:
    a = write("a", m__enc__w=ONE, m__enc__b=np.zeros(4, "float32"))
    b = write("b", m__new__w=ONE, m__new__b=np.zeros(4, "float32"))
    assert kinds(document("diff", a, b, status=1)) == {
        ("moved", "m/enc/w", "m/new/w"),
        ("only_a", "m/enc/b", None),  # zeros are everywhere
        ("only_b", None, "m/new/b"),
    }


def test_differences_are_listed_by_their_numbers(write: Callable[..., str]) -> None:
    a = write("a", **{f"m__v{n}": np.arange(9.0) + n for n in range(12)})
    b = write("b", **{f"m__v{n}": np.arange(9.0) * n for n in range(12)})
    out = run("diff", a, b, "--values").out
    assert [line.split()[0] for line in out.splitlines() if line.startswith("m/v")] == [
        f"m/v{n}" for n in range(12)
    ]


def test_a_histogram_is_numpys():
    numbers = np.random.default_rng(7).normal(size=2_500_000).astype(np.float32)
    expected, _ = np.histogram(numbers.astype(np.float64), BINS)
    assert statistics(numbers).histogram == tuple(expected)
    ramp = np.arange(256, dtype=np.uint8)
    assert statistics(ramp).histogram == tuple(np.histogram(ramp.astype(float), BINS)[0])


def test_what_is_no_number_is_counted_apart():
    found = statistics(np.array([np.nan, np.inf, -np.inf, 1.0]))
    assert (found.nonfinite, found.least, found.greatest, found.std) == (3, 1.0, 1.0, 0.0)
    for array in (np.full(3, np.nan), np.zeros((0, 3))):
        found = statistics(array)
        assert (found.least, found.mean, found.std, found.histogram) == (None, None, None, ())
    assert statistics(np.array([b"a"], object)) is None


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ([2**60], [2**60 + 1], 1.0),
        ([-(2**63)], [2**63 - 1], float(2**64)),
        (np.array([2**64 - 1], np.uint64), np.array([2**64 - 2], np.uint64), 1.0),
        (np.array([127], np.int8), np.array([-128], np.int8), 255.0),
        ([True], [False], 1.0),
        ([5e-324], [1e-323], 5e-324),
    ],
)
def test_how_far_apart_integers_are_is_exact(a, b, expected):
    found = difference(np.array(a), np.array(b))
    assert (found.count, found.largest) == (1, expected)


def test_nan_is_equal_to_nan():
    assert difference(np.array([np.nan]), np.array([np.nan])) == Distance(0, 0.0, 0.0)
