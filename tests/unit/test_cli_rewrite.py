"""`tfckpt rewrite`: what plain TensorFlow finds in the result, and what is refused."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import tensorflow as tf

import tfckpt
from tfckpt.cli.main import main
from tfckpt.stored.formats.open import open_checkpoint

if TYPE_CHECKING:
    from collections.abc import Callable


def run(*arguments: object) -> int:
    return main(["tfckpt", "rewrite", *map(str, arguments)])


def build() -> Any:
    """Two layers, an optimizer with slots, a seed."""
    import keras

    model = keras.Sequential(
        [
            keras.Input((4,)),
            keras.layers.Dense(3, name="body"),
            keras.layers.Dropout(0.5, seed=1),
            keras.layers.Dense(2, name="head"),
        ]
    )
    model.compile("adam", "mse")
    model.train_on_batch(np.ones((2, 4)), np.ones((2, 2)))
    return model


@pytest.fixture(scope="module")
def model() -> Any:
    return build()


@pytest.fixture(scope="module")
def source(model: Any, tmp_path_factory: pytest.TempPathFactory) -> str:
    directory = tmp_path_factory.mktemp("source")
    return tfckpt.Checkpoint(model=model).save(f"{directory}/ckpt")


@pytest.fixture(scope="module")
def plain(model: Any, tmp_path_factory: pytest.TempPathFactory) -> str:
    """What TensorFlow alone wrote."""
    directory = tmp_path_factory.mktemp("plain")
    return str(tf.train.Checkpoint(model=model).save(f"{directory}/ckpt"))


@pytest.fixture
def target(tmp_path: Path) -> str:
    return f"{tmp_path}/new-1"


def weights(model: Any) -> list[bytes]:
    return [np.asarray(weight).tobytes() for weight in model.get_weights()]


def stored(prefix: str) -> dict[str, Any]:
    """By plain TensorFlow, key → value; the object graph aside."""
    reader = tf.train.load_checkpoint(prefix)
    keys = reader.get_variable_to_shape_map()
    return {key: reader.get_tensor(key) for key in keys if not key.startswith("_CHECKPOINTABLE")}


def content(prefix: str) -> dict[str, bytes]:
    place = Path(prefix)
    return {
        file.name.removeprefix(place.name): file.read_bytes()
        for file in place.parent.glob(f"{place.name}.*")
        if not file.name.endswith(".json")
    }


def test_a_checkpoint_without_changes_is_the_same_bytes(
    source: str, plain: str, tmp_path: Path
) -> None:
    for number, old in enumerate((source, plain)):
        assert run(old, tmp_path / f"new-{number}") == 0
        assert content(f"{tmp_path}/new-{number}") == content(old)


def test_plain_tensorflow_restores_it(source: str, target: str, model: Any) -> None:
    assert run(source, target, "--shard_size", "20") == 0
    assert len(list(Path(target).parent.glob("*.data-*"))) > 5
    other = build()
    tf.train.Checkpoint(model=other).restore(target).assert_existing_objects_matched()
    assert weights(other) == weights(model)


def test_what_is_left_out_is_in_neither_index_nor_graph(
    source: str, target: str, model: Any
) -> None:
    assert run(source, target, "--drop_optimizer", "--exclude", "model/head/**") == 0
    assert not any("head" in key or "optimizer/_variables" in key for key in stored(target))
    other = build()
    before = weights(other)
    status = tf.train.Checkpoint(model=other).read(target)
    status.assert_nontrivial_match().expect_partial()
    assert weights(other)[:2] == weights(model)[:2]
    assert weights(other)[2:] == before[2:]
    with pytest.raises(AssertionError):
        status.assert_existing_objects_matched()


def test_a_layer_with_another_name_takes_its_slots_along(
    source: str, target: str, model: Any
) -> None:
    assert run(source, target, "--rename", "model/body/**=model/trunk/**") == 0
    with open_checkpoint(target) as new:
        names = set(new.inventory.entries)
        assert new.inventory.entries["optimizer/momentum/trunk/kernel"].of == "model/trunk/kernel"
        assert [layer.place for layer in new.inventory.containers["model"].layers] == [
            "trunk",
            "head",
        ]
        assert not any("body" in name for name in names)
        kernel = new.values.read(new.inventory.entries["model/trunk/kernel"].key)
    assert kernel.tobytes() == weights(model)[0]


def test_floating_point_weights_and_slots_are_cast(source: str, target: str, model: Any) -> None:
    assert run(source, target, "--cast", "bfloat16", "--cast", "model/head/bias=float64") == 0
    types = {name: e.dtype for name, e in open_checkpoint(target).inventory.entries.items()}
    assert types["model/body/kernel"] == types["optimizer/momentum/body/kernel"] == "bfloat16"
    assert types["model/head/bias"] == "float64"
    assert (types["optimizer/learning_rate"], types["optimizer/iterations"]) == ("float32", "int64")
    expected = tf.cast(model.get_weights()[0], tf.bfloat16).numpy()
    found = [v for v in stored(target).values() if v.dtype == expected.dtype and v.shape == (4, 3)]
    assert any(value.tobytes() == expected.tobytes() for value in found)


def test_several_are_averaged(source: str, target: str, tmp_path: Path, model: Any) -> None:
    others = [build(), build()]
    for other in others:  # what TensorFlow sees is what counts, so it writes them
        other.set_weights([w + np.float32(number) for number, w in enumerate(other.get_weights())])
    prefixes = [
        tf.train.Checkpoint(model=other).save(f"{tmp_path}/{number}/ckpt")
        for number, other in enumerate(others)
    ]
    flags = [word for prefix in prefixes for word in ("--average", prefix)]
    assert run(source, target, *flags) == 0
    new = build()
    tf.train.Checkpoint(model=new).read(target).assert_nontrivial_match().expect_partial()
    sides = [one.get_weights() for one in (model, *others)]
    for found, *parts in zip(new.get_weights(), *sides, strict=True):
        np.testing.assert_allclose(found, np.mean(parts, axis=0, dtype=np.float64), rtol=1e-6)
    with open_checkpoint(target) as there:
        assert not any(name.startswith("optimizer/") for name in there.inventory.entries)
    assert not any("optimizer/_variables" in key for key, _ in tf.train.list_variables(target))
    assert run(source, f"{target}0", "--average", tmp_path / "none") == 1


@pytest.mark.parametrize(
    ("value", "to", "said"),
    [
        (1e9, "float16", "float16 cannot hold 1000000000.0"),
        (np.uint8(200), "int8", "int8 cannot hold 200"),
    ],
)
def test_a_cast_that_would_lose_a_value_leaves_nothing(
    value: Any, to: str, said: str, target: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old = tf.train.Checkpoint(a=tf.Variable([value]), b=tf.Variable([1.0])).write(f"{tmp_path}/old")
    before = sorted(tmp_path.iterdir())
    assert run(old, target, "--cast", f"a={to}") == 1
    error = capsys.readouterr().err
    assert said in error
    assert "'a'" in error
    assert sorted(tmp_path.iterdir()) == before


def test_rules_come_from_a_policy(source: str, target: str, tmp_path: Path) -> None:
    config = tmp_path / "policy.yaml"
    config.write_text(
        "version: 1\npolicies:\n  a: {include: ['model/**']}\n"
        "  b:\n    optimizer: {slots: reset, iterations: restore}\n"
        "    rename: [{checkpoint: 'model/body/*', model: 'x/*'}]\n"
    )
    assert run(source, target, "--config", config) == 2
    assert run(source, target, "--config", config, "--policy", "b", "--exclude", "x/**") == 2
    assert run(source, target, "--config", config, "--policy", "b") == 0
    with open_checkpoint(target) as new:
        names = set(new.inventory.entries)
    assert {"x/kernel", "x/bias", "optimizer/iterations"} <= names
    assert not any("momentum" in name for name in names)


def test_a_checkpoint_knows_what_it_was_made_of(source: str, target: str) -> None:
    other, mean = f"{target}1", f"{target}2"
    for prefix in (target, other):
        assert run(source, prefix, "--include", "model/**") == 0
    assert run(target, mean, "--average", other) == 0
    digests = [
        hashlib.sha256(Path(f"{prefix}.index").read_bytes()).hexdigest()
        for prefix in (source, target, other)
    ]
    lineages = []
    for prefix in (target, mean):
        with open_checkpoint(prefix) as there:
            assert there.record is not None
            lineages.append(there.record.lineage)
    ((first,), (last,)) = lineages
    assert [(one.path, one.sha256) for one in first.sources] == [(source, digests[0])]
    assert first.counts["LOADED"] == 4
    (origin,) = last.sources
    shares = [(share.path, share.sha256, share.weight) for share in origin.average]
    assert shares == [(target, digests[1], 0.5), (other, digests[2], 0.5)]


def test_what_only_a_model_can_tell_is_refused(
    source: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "policy.yaml"
    config.write_text(
        "version: 1\npolicies:\n  a:\n    adapt:\n      - {how: transpose, model: model/**}\n"
    )
    assert run(source, tmp_path / "new", "--config", config) != 0
    assert (
        "policy.yaml:5:9: adapt: needs a model, which rewrite and convert do not have"
        in capsys.readouterr().err
    )
    assert not list(tmp_path.glob("new*"))


@pytest.mark.parametrize(
    ("flags", "status"),
    [
        (["--include", "modl/**"], 1),
        (["--rename", "model/body/*=model/head/*"], 1),
        (["--rename", "model/body/*"], 2),
        (["--rename", "model/**=model"], 2),
        (["--cast", "float12"], 2),
        (["--cast", "modl/**=float16"], 2),
        (["--cast", "model/**=string"], 2),
        (["--cast", "model/**=bool"], 1),
        (["--shard_size", "0"], 2),
        (["--policy", "a"], 2),
    ],
)
def test_what_makes_no_sense_writes_nothing(
    source: str, target: str, tmp_path: Path, flags: list[str], status: int
) -> None:
    assert run(source, target, *flags) == status
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("there", ["index", "data-00000-of-00009", "tfckpt.json", ""])
def test_nothing_is_written_over(source: str, target: str, there: str) -> None:
    file = Path(f"{target}.{there}" if there else target)
    file.write_text("kept")
    assert run(source, target) == 1
    assert [(f, f.read_text()) for f in file.parent.iterdir()] == [(file, "kept")]


def test_a_damaged_source_leaves_nothing(
    source: str, target: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import shutil

    old = tmp_path / "old"
    shutil.copytree(Path(source).parent, old)
    data = next(old.glob("*.data-*"))
    raw = bytearray(data.read_bytes())
    raw[3] ^= 1
    data.write_bytes(raw)
    assert run(old / Path(source).name, target) == 1
    assert "checksum" in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["old"]


def test_ctrl_c_leaves_nothing(
    source: str, target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tfckpt.stored.bundles.bundle import Bundle

    calls = iter(range(100))

    def read(self: Bundle, key: str, original: Callable[..., Any] = Bundle.read) -> Any:
        if next(calls) == 7:
            raise KeyboardInterrupt
        return original(self, key)

    monkeypatch.setattr(Bundle, "read", read)
    assert run(source, target) == 130
    assert not list(tmp_path.iterdir())


def test_a_lookup_table_and_an_iterator_go_along(tmp_path: Path, target: str) -> None:
    def objects() -> dict[str, Any]:
        table = tf.lookup.experimental.MutableHashTable(tf.string, tf.int64, -1)
        data = iter(tf.data.Dataset.range(5))
        return {"table": table, "data": data, "step": tf.Variable(3)}

    old = objects()
    old["table"].insert(tf.constant(["a"]), tf.constant([7], tf.int64))
    next(old["data"])
    prefix = tf.train.Checkpoint(**old).write(f"{tmp_path}/old")
    assert run(prefix, target) == 0
    new = objects()
    tf.train.Checkpoint(**new).read(target).assert_consumed()
    assert int(new["table"].lookup(tf.constant("a"))) == 7
    assert int(next(new["data"])) == 1
    assert run(prefix, f"{target}0", "--exclude", "table") == 0
    assert not any("table" in key for key, _ in tf.train.list_variables(f"{target}0"))
    without = {"data": new["data"], "step": new["step"]}
    tf.train.Checkpoint(**without).read(f"{target}0").assert_existing_objects_matched()


def test_what_has_no_object_graph_gets_one_of_its_names(tmp_path: Path, target: str) -> None:
    kernel, bias = np.arange(6, dtype=np.float32).reshape(2, 3), np.ones(3, np.float32)
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        tf.compat.v1.get_variable("dense/kernel", initializer=kernel)
        tf.compat.v1.get_variable("dense/odd.name", initializer=bias)
        session.run(tf.compat.v1.global_variables_initializer())
        old = tf.compat.v1.train.Saver().save(session, f"{tmp_path}/old")
    assert run(old, target) == 0
    with open_checkpoint(old) as there, open_checkpoint(target) as here:
        assert list(here.inventory.entries) == sorted(there.inventory.entries)
        names = {e.key: name for name, e in there.inventory.entries.items()}
    root = tf.Module()
    for name, value in (("dense/kernel", kernel), ("dense/odd.name", bias)):
        place = root
        *path, last = names[name].split("/")
        for part in path:
            setattr(place, part, getattr(place, part, tf.Module()))
            place = getattr(place, part)
        setattr(place, last, tf.Variable(tf.zeros(value.shape)))
    tf.train.Checkpoint(root).read(target).assert_consumed()
    found = {v.shape.rank: v.numpy() for v in root.variables}
    assert found[2].tobytes() == kernel.tobytes()
    assert found[1].tobytes() == bias.tobytes()
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:  # by the variable's own name
        again = tf.compat.v1.get_variable("dense/kernel", initializer=np.zeros_like(kernel))
        tf.compat.v1.train.Saver().restore(session, target)
        assert session.run(again).tobytes() == kernel.tobytes()
