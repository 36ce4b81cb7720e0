"""SavedModels, TF1's first format, files that hold no training, and files rewritten."""

from __future__ import annotations

import hashlib
import random
from collections import Counter
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from zoo.graphs import dense, save, v1
from zoo.variables import inner

import tfckpt
from tfckpt.cli.main import main
from tfckpt.errors import (
    CheckpointError,
    CheckpointNotFoundError,
    DamagedCheckpointError,
    RefusedError,
    UnsupportedCheckpointError,
)
from tfckpt.stored.formats.open import open_checkpoint


def nested(flavour: Any) -> Any:
    """A model in a model; nothing in the variables' names tells what the inner one is called."""
    layers = flavour.layers
    inner = flavour.Sequential(
        [flavour.Input((4,)), layers.Dense(4), layers.Dense(3)], name="tower"
    )
    inputs = flavour.Input((4,))
    outputs = layers.Dense(2, name="out")(layers.BatchNormalization()(inner(inputs)))
    return flavour.Model(inputs, outputs)


def fill(model: Any) -> None:
    random = np.random.default_rng(0)
    for variable in model.variables:
        variable.assign(random.uniform(0.1, 1.0, variable.shape))


@pytest.fixture(scope="module")
def of_tf_keras(tmp_path_factory: Any) -> tuple[str, dict[str, Any]]:
    """Its directory, and its weights by their last names."""
    model = nested(tf_keras)
    model.compile("adam", "mse", metrics=["mae"])
    model.train_on_batch(np.ones((2, 4)), np.ones((2, 2)))
    fill(model)
    directory = str(tmp_path_factory.mktemp("saved") / "model")
    model.save(directory, save_format="tf")
    return directory, model.get_weights()


def test_layers_have_the_names_that_keras_gave_them(of_tf_keras) -> None:
    directory, _ = of_tf_keras
    with open_checkpoint(directory) as stored:
        names = set(stored.inventory.entries)
    assert {
        "model/tower/dense/kernel",
        "model/tower/dense_1/bias",
        "model/batch_normalization/moving_mean",
        "model/out/kernel",
        "optimizer/momentum/tower/dense/kernel",
        "metrics/mae/total",
    } <= names
    assert not [name for name in names if "layer_with_weights" in name]


def test_it_is_restored_into_both_flavours(of_tf_keras, flavour) -> None:
    directory, weights = of_tf_keras
    model = nested(flavour)
    config = {
        "version": 1,
        "restore": {"path": directory, "policy": {"include": ["model/**"]}},
    }
    tfckpt.restore(config, model=model)
    np.testing.assert_equal(model.get_weights(), weights)


def test_what_keras_3_exports(tmp_path: Path) -> None:
    model = nested(keras)
    fill(model)
    model.export(str(tmp_path / "model"), verbose=False)
    with open_checkpoint(str(tmp_path / "model")) as stored:
        assert stored.kind == "saved_model"
        found = [stored.values.read(e.key) for e in stored.inventory.entries.values() if e.shape]
    for weight in model.get_weights():
        assert any(np.array_equal(weight, value) for value in found)


def sequential(flavour: Any, *names: str | None) -> Any:
    layers = flavour.layers
    inside = [layers.Dense(4, name=name) for name in names]
    return flavour.Sequential(
        [flavour.Input((4,)), *inside, layers.BatchNormalization(), layers.Dropout(0.5)]
    )


def functional(flavour: Any) -> Any:
    inputs = flavour.Input((None, 4))
    outputs = flavour.layers.Bidirectional(flavour.layers.LSTM(3))(inputs)
    return flavour.Model(inputs, flavour.layers.Dense(2, name="out")(outputs))


class Subclassed(keras.Model):
    """Its attributes are called as its layers, each as the other."""

    def __init__(self) -> None:
        super().__init__()
        self.b = keras.layers.Dense(4, name="a")
        self.a = keras.layers.Dense(4, name="b")

    def call(self, inputs: Any) -> Any:
        return self.a(self.b(inputs))


def restore_exported(directory: Path, model: Any) -> None:
    policy = {"include": ["model/**"]}
    tfckpt.restore(
        {"version": 1, "restore": {"path": str(directory), "policy": policy}}, model=model
    )


@pytest.mark.parametrize(
    "build", [functional, lambda k: sequential(k, None, None), lambda k: sequential(k, "b", "a")]
)
def test_an_exported_model_is_restored(flavour, build, tmp_path: Path) -> None:
    written = build(flavour)
    fill(written)
    written.export(str(tmp_path / "model"), **({"verbose": False} if flavour is keras else {}))
    model = build(flavour)
    restore_exported(tmp_path / "model", model)
    np.testing.assert_equal(model.get_weights(), written.get_weights())
    with open_checkpoint(str(tmp_path / "model")) as stored:
        weights = [name for name in stored.inventory.entries if name.startswith("model/")]
    assert len(weights) == len(written.get_weights())


def test_an_exported_model_does_not_go_into_one_with_another_layer(flavour, tmp_path) -> None:
    written = sequential(flavour, None, None)
    written.export(str(tmp_path / "model"), **({"verbose": False} if flavour is keras else {}))
    for names in ((None, None, None), (None, "new", None), ("new", None)):
        with pytest.raises(RefusedError):
            restore_exported(tmp_path / "model", sequential(flavour, *names))


def test_names_that_two_exported_values_share_are_no_names(tmp_path: Path) -> None:
    """In a subclassed model of Keras 3, each kernel is `subclassed/kernel`."""
    written, model = Subclassed(), Subclassed()
    for each in (written, model):
        each(np.ones((1, 4)))
    written.export(str(tmp_path / "model"), verbose=False)
    before = model.get_weights()
    with pytest.raises(RefusedError, match="MISSING"):
        restore_exported(tmp_path / "model", model)
    np.testing.assert_equal(model.get_weights(), before)


def test_what_tf1s_builder_wrote(tmp_path: Path) -> None:
    directory = str(tmp_path / "model")
    with tf.Graph().as_default(), v1.Session() as session:
        dense(tf.ones((1, 3)), 2, "out")
        session.run(v1.global_variables_initializer())
        builder = v1.saved_model.Builder(directory)
        builder.add_meta_graph_and_variables(session, ["serve"])
        builder.save()
        kernel, bias = session.run(v1.global_variables())
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2, name="out")])
    tfckpt.restore(
        {"version": 1, "restore": {"path": directory, "policy": {"assert": "consumed"}}},
        model=model,
    )
    np.testing.assert_equal(model.get_weights(), [kernel, bias])


def test_one_without_variables_says_so(tmp_path: Path) -> None:
    (tmp_path / "saved_model.pb").write_bytes(b"")
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2, name="out")])
    with pytest.raises(DamagedCheckpointError, match="is a SavedModel without variables"):
        tfckpt.Checkpoint(model=model).restore(str(tmp_path))


V1 = v1.train.SaverDef.V1


# Those that TensorFlow can write in this version.
DTYPES = (
    "float32", "float64", "float16", "int8", "uint8", "int16", "uint16", "int32", "int64",
    "bool", "complex64", "complex128", "string",
)  # fmt: skip
NUMBERS = np.array([[0, 1, -1], [127, -128, 5]])


def typed() -> None:
    for dtype in DTYPES:
        if dtype == "string":
            initial = tf.constant([[b"a", b""], [b"x" * 300, b"\0\xff"]])
        else:
            initial = tf.cast(tf.constant(NUMBERS), dtype)
        v1.get_variable(dtype, initializer=initial, use_resource=False)
    v1.get_variable("scalar", initializer=tf.constant(2.5))
    v1.get_variable("empty", initializer=tf.zeros((0, 3)))
    v1.get_variable("big", (300, 1000))
    v1.get_variable("odd", initializer=tf.constant([1.0, 2.0]))


def written(path: Path) -> tuple[str, dict[str, Any]]:
    with tf.Graph().as_default(), v1.Session() as session:
        typed()
        session.run(v1.global_variables_initializer())
        named = {each.op.name.replace("odd", "odd\0 näme"): each for each in v1.global_variables()}
        saver = v1.train.Saver(named, write_version=V1)
        prefix = saver.save(session, str(path), write_meta_graph=False)
        return prefix, {name: each.eval() for name, each in named.items()}


@pytest.fixture(scope="module")
def single(tmp_path_factory: Any) -> tuple[str, dict[str, Any]]:
    return written(tmp_path_factory.mktemp("single") / "model.ckpt-3")


@pytest.fixture(scope="module")
def sharded(tmp_path_factory: Any) -> Any:
    """Two files; one variable in four parts that lie in both."""

    def placed() -> None:
        part = iter(range(4))

        def device(op: Any) -> str:
            return f"/cpu:{next(part) % 2}" if op.type == "VarHandleOp" else ""

        for number in (0, 1):
            with v1.device(f"/cpu:{number}"):
                v1.get_variable(f"on_{number}", (3, 2))
        with v1.device(device):
            v1.get_variable("parted", (10, 4), partitioner=v1.fixed_size_partitioner(4))

    path = tmp_path_factory.mktemp("sharded") / "model.ckpt-3"
    return save(path, placed, version=V1, sharded=True, devices={"CPU": 2})


def read_all(prefix: str) -> dict[str, Any]:
    with open_checkpoint(prefix, roots={}) as stored:
        assert stored.kind == "tf1_saver_v1"
        return {e.name: stored.values.read(e.key) for e in stored.inventory.entries.values()}


def test_every_type_reads_as_it_was(single) -> None:
    prefix, expected = single
    found = read_all(prefix)
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert found[name].dtype == value.dtype, name
        np.testing.assert_array_equal(found[name], value, name)


def test_what_is_listed_is_what_tensorflow_lists(single) -> None:
    prefix, _ = single
    reader = v1.train.NewCheckpointReader(prefix)
    with open_checkpoint(prefix, roots={}) as stored:
        entries = stored.inventory.entries.values()
        assert {e.key: list(e.shape) for e in entries} == reader.get_variable_to_shape_map()
        types = {key: dtype.name for key, dtype in reader.get_variable_to_dtype_map().items()}
        assert {e.key: e.dtype for e in entries} == types
        stored.values.verify(entry.key for entry in entries)
        assert stored.values.digest == hashlib.sha256(Path(prefix).read_bytes()).hexdigest()


def joined(values: dict[str, Any]) -> dict[str, Any]:
    parts = [values[f"parted/part_{n}"] for n in range(4)]
    whole = {name: value for name, value in values.items() if "part_" not in name}
    return {**whole, "parted": np.concatenate(parts)}


def test_shards_and_parts_become_one(sharded) -> None:
    directory = Path(sharded.path).parent
    names = [p.name for p in directory.glob("model*")]
    assert sorted(names) == [f"model.ckpt-3-0000{n}-of-00002" for n in (0, 1)]
    for prefix in (sharded.path, str(directory / "model.ckpt-3")):
        found = read_all(prefix)
        np.testing.assert_equal(found, joined(sharded.values))


def test_a_missing_file_is_named(sharded, tmp_path) -> None:
    one = Path(sharded.path).parent / "model.ckpt-3-00001-of-00002"
    (tmp_path / one.name).write_bytes(one.read_bytes())
    with pytest.raises(
        DamagedCheckpointError, match="this file of the checkpoint is missing"
    ) as caught:
        open_checkpoint(str(tmp_path / "model.ckpt-3"))
    assert caught.value.path == str(tmp_path / "model.ckpt-3-00000-of-00002")


def test_damage_to_one_value_is_that_values(single, tmp_path) -> None:
    prefix, expected = single
    content = bytearray(Path(prefix).read_bytes())
    at = content.find(expected["big"].tobytes()[:400])
    assert at > 0
    content[at] ^= 1
    copy = tmp_path / "copy"
    copy.write_bytes(content)
    with open_checkpoint(str(copy), roots={}) as stored:
        np.testing.assert_array_equal(stored.values.read("scalar"), expected["scalar"])
        with pytest.raises(DamagedCheckpointError, match="checksum") as caught:
            stored.values.verify(["big"])
        assert caught.value.path == str(copy)


def test_mutants_are_errors_of_the_package_or_right(single, tmp_path) -> None:
    """Bits flipped, pieces cut out and doubled: never another exception, never other numbers."""
    prefix, expected = single
    content = Path(prefix).read_bytes()
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    for number in range(60):
        copy = bytearray(content)
        at = rng.choice([rng.randrange(len(copy)), len(copy) - 1 - rng.randrange(3000)])
        kind = number % 3
        if kind == 0:
            copy[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            del copy[at : at + rng.randrange(1, 5000)]
        else:
            copy[at:at] = copy[at : at + rng.randrange(1, 500)]
        (tmp_path / "mutant").write_bytes(copy)
        try:
            found = read_all(str(tmp_path / "mutant"))
        except (DamagedCheckpointError, UnsupportedCheckpointError, CheckpointNotFoundError):
            continue
        except CheckpointError as error:
            pytest.fail(repr(error))
        np.testing.assert_equal(found, expected)


def recurrent(k: Any, *, stateful: bool) -> Any:
    model = k.Sequential(
        [
            k.layers.LSTM(3, stateful=stateful, return_sequences=True),
            k.layers.GRU(2, stateful=stateful),
            k.layers.Dense(2),
        ]
    )
    model(np.zeros((2, 5, 3), "float32"))
    return model


def written_weights(model: Any, place: Any) -> str:
    """In TensorFlow's format, without a counter."""
    return str(tf.train.Checkpoint(model=model).write(str(place / "weights")))


def trained(model: Any) -> list[Any]:
    return list(model.trainable_weights)


@pytest.mark.parametrize("write", ["h5", "tensorflow", "export"])
def test_a_file_of_weights_needs_no_policy(write: str, flavour: Any, tmp_path: Any) -> None:
    """Nor does a stateful model miss the states of recurrent layers, which are no weights."""
    first, model = recurrent(flavour, stateful=False), recurrent(flavour, stateful=True)
    path = str(tmp_path / f"w.weights.{write}")
    if write == "h5":
        first.save_weights(path)
    elif write == "export":
        tf.saved_model.save(first, path)
    else:
        path = written_weights(first, tmp_path)
    report = tfckpt.from_config({"version": 1, "restore": {"path": path}}, model).restore()
    pairs = zip(first.weights, trained(model), strict=True)
    assert all(np.array_equal(inner(a).numpy(), inner(b).numpy()) for a, b in pairs)
    said = [step.reason for step in report.plan.steps if step.name == "save_counter"]
    wanted = "taken as api: read, because the checkpoint counts no saves"
    assert said == ([] if write == "h5" else [wanted])  # a file of Keras has no counter ever
    states = [step for step in report.plan.steps if "/states/" in step.name]
    assert states
    assert {(str(step.status), str(step.entry.role)) for step in states} == {("MISSING", "state")}


def test_the_states_that_a_run_saved_are_restored(flavour: Any, tmp_path: Any) -> None:
    model = recurrent(flavour, stateful=True)
    model(np.ones((2, 5, 3), "float32"))
    kept = [inner(each).numpy() for each in model.layers[0].states]
    path = tfckpt.Checkpoint(model=model).save(str(tmp_path / "ckpt"))
    model(np.full((2, 5, 3), 2, "float32"))
    tfckpt.restore(path, model)
    for state, value in zip(model.layers[0].states, kept, strict=True):
        np.testing.assert_array_equal(inner(state).numpy(), value)
    assert np.any(kept[0])


def test_a_policy_that_says_restore_wants_the_counter(flavour: Any, tmp_path: Any) -> None:
    model = recurrent(flavour, stateful=False)
    source = {"path": written_weights(model, tmp_path), "policy": {"api": "restore"}}
    run = tfckpt.from_config({"version": 1, "restore": source}, model)
    with pytest.raises(tfckpt.RefusedError, match="its writer does not count"):
        run.restore()


GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"


def prefixes(corpus: Path) -> list[str]:
    """Every index of which the data is there too."""
    found = sorted(corpus.rglob("*.index"))
    return [str(p.with_suffix("")) for p in found if list(p.parent.glob(f"{p.stem}.data-*"))]


def contents(prefix: str) -> Counter[tuple[Any, ...]]:
    """The values of a checkpoint, whatever their keys, as TensorFlow reads them."""
    reader = tf.train.load_checkpoint(prefix)
    found: Counter[tuple[Any, ...]] = Counter()
    for key, shape in reader.get_variable_to_shape_map().items():
        if key != GRAPH:
            value = reader.get_tensor(key)
            raw = value if isinstance(value, bytes) else value.tobytes()
            if getattr(value, "dtype", None) == np.dtype(object):
                raw = tuple(value.ravel())
            found[tuple(shape), str(reader.get_variable_to_dtype_map()[key]), raw] += 1
    return found


def test_what_is_rewritten_holds_the_same(corpus: Path, tmp_path: Path) -> None:
    rewritten = 0
    for number, prefix in enumerate(prefixes(corpus)):
        try:
            old = open_checkpoint(prefix)
        except CheckpointError:
            continue
        target = f"{tmp_path}/new-{number}"
        with old:
            whole = bool(old.inventory.entries) and not old.values.missing_files
            status = main(["tfckpt", "rewrite", prefix, target, "--shard_size", "2M"])
            assert status == (0 if whole else 1), prefix
            if not whole:
                continue
            with open_checkpoint(target) as new:
                assert old.inventory.entries.keys() == new.inventory.entries.keys(), prefix
                assert old.inventory.containers == new.inventory.containers, prefix
        assert contents(target) == contents(prefix), prefix
        rewritten += 1
    assert rewritten > 20


def test_keras_files_become_checkpoints(corpus: Path, tmp_path: Path) -> None:
    paths = sorted([*corpus.rglob("*.keras"), *corpus.rglob("*.h5")])
    for number, path in enumerate(paths):
        target = f"{tmp_path}/new-{number}"
        assert main(["tfckpt", "rewrite", str(path), target]) == 0
        with open_checkpoint(str(path)) as old:
            names = old.inventory.entries.keys()
            expected = {name: old.values.read(old.inventory.entries[name].key) for name in names}
        reader = tf.train.load_checkpoint(target)
        with open_checkpoint(target) as new:
            assert new.inventory.entries.keys() == names
            for name, entry in new.inventory.entries.items():
                found = np.asarray(reader.get_tensor(entry.key))
                assert found.tobytes() == expected[name].tobytes(), name
    assert paths
