"""`tfckpt inspect`: the tree, statistics, single values and keys."""

from __future__ import annotations

from typing import TYPE_CHECKING

import ml_dtypes
import numpy as np
import pytest
from zoo.command_line import document, run

if TYPE_CHECKING:
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


def test_subtrees_have_their_sums(prefix: str) -> None:
    ended = run("inspect", prefix)
    assert ended.status == 0
    assert ["model/block_0/", "2", "values", "64", "B"] in lines(ended.out)
    assert ["model/block_0/kernel", "weight", "float32", "(3,", "4)", "48", "B"] in lines(ended.out)


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


def test_statistics_as_a_table(prefix: str) -> None:
    ended = run("inspect", prefix, "--values")
    found = lines(ended.out)
    assert ["model/odd", "-1", "0", "-0.5", "0.5", "50%", "2"] in [line[:7] for line in found]
    assert max(map(len, ended.out.splitlines()[2:])) <= 80


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


def test_strings_are_harmless_and_long_ones_cut(prefix: str) -> None:
    ended = run("inspect", prefix, "--name", "model/words")
    assert "\x1b" not in ended.out
    assert r"a\x1b[31m" in ended.out
    assert "(300 bytes)" in ended.out


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


def test_keys_are_those_of_tensorflow(prefix: str) -> None:
    import tensorflow as tf

    out = run("inspect", prefix, "--keys").out
    keys = dict(tf.train.list_variables(prefix)).keys() - {"_CHECKPOINTABLE_OBJECT_GRAPH"}
    assert keys
    assert all(key in out.split() for key in keys)


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
