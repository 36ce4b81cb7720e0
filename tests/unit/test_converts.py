"""`tfckpt rewrite` and `convert`: what TensorFlow, NumPy and Keras find in the result."""

from __future__ import annotations

import hashlib
import importlib
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import tensorflow as tf
from zoo.command_line import document, run
from zoo.tensors import DTYPES, random_array

import tfckpt
from tfckpt.errors import CheckpointError, DamagedCheckpointError
from tfckpt.stored.bundles.bundle import Bundle
from tfckpt.stored.formats.open import open_checkpoint

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SCRIPT = """
import {flavor} as keras

def plain():
    layers = [keras.layers.Dense(3, name="hidden"), keras.layers.Dense(2, name="head")]
    return keras.Sequential([keras.Input((4,)), *layers])

def build():
    model = plain()
    model.compile("adam", "mse")
    return model
"""
ARRAYS = sorted({*DTYPES} - {"bfloat16", "int4", "uint4", "float8_e5m2", "float8_e4m3fn"})
TENSORS = sorted({*DTYPES} - {"complex128", "int4", "uint4"})


def save(prefix: str, content: dict[str, Any]) -> str:
    """By TensorFlow, each value under its key."""
    tf.raw_ops.SaveV2(
        prefix=prefix,
        tensor_names=list(content),
        shape_and_slices=[""] * len(content),
        tensors=[tf.constant(value) for value in content.values()],
    )
    return prefix


def random_values(dtypes: list[str]) -> dict[str, Any]:
    shapes: list[tuple[int, ...]] = [(), (3,), (0, 2), (2, 3, 5)]
    return {
        f"{dtype}/v{number}": random_array(number, dtype, shape)
        for number, (dtype, shape) in enumerate((d, s) for d in dtypes for s in shapes)
    }


def same(found: dict[str, Any], expected: dict[str, Any]) -> None:
    """Names may have a first component in front."""
    names = {name.removeprefix("model/"): value for name, value in found.items()}
    assert names.keys() == expected.keys()
    for name, value in expected.items():
        assert (names[name].dtype, names[name].shape) == (value.dtype, value.shape), name
        assert names[name].tobytes() == value.tobytes(), name


def entries(path: str | Path) -> Any:
    return tfckpt.inspect(path).inventory.entries


# --- arrays and tensors


def test_numpy_and_safetensors_read_every_bit_of_equal_files(tmp_path: Path) -> None:
    safetensors = pytest.importorskip("safetensors")
    for suffix, dtypes in (("npz", ARRAYS), ("safetensors", TENSORS)):
        content = random_values(dtypes)
        prefix = save(f"{tmp_path}/{suffix}", content)
        files = [tmp_path / f"{name}.{suffix}" for name in "ab"]
        assert [run("convert", prefix, file).status for file in files] == [0, 0]
        assert files[0].read_bytes() == files[1].read_bytes()
        if suffix == "npz":
            with np.load(files[0], allow_pickle=False) as archive:
                same(dict(archive), content)
            continue
        found = {}
        for name, info in safetensors.deserialize(files[0].read_bytes()):
            dtype = content[name.removeprefix("model/")].dtype
            found[name] = np.frombuffer(bytes(info["data"]), dtype).reshape(info["shape"])
        same(found, content)


def test_names_roles_and_all_tensors_survive_safetensors(tmp_path: Path) -> None:
    import keras

    def net(name: str) -> Any:
        return keras.Sequential([keras.Input((4,)), keras.layers.Dense(2, name=name)])

    generator, critic, optimizer = net("g"), net("c"), keras.optimizers.Adam()
    optimizer.build(generator.trainable_variables)
    objects = {"generator": generator, "discriminator": critic, "step": tf.Variable(7)}
    objects |= {"generator_optimizer": optimizer, "data": iter(tf.data.Dataset.range(3))}
    prefix = tfckpt.Checkpoint(**objects).save(f"{tmp_path}/gan/ckpt")
    target = tmp_path / "gan.safetensors"
    ended = run("convert", prefix, target)
    assert ended.status == 0
    assert "left out, because .safetensors can hold only tensors: data" in ended.err
    expected = {name: entry.role for name, entry in entries(prefix).items() if name != "data"}
    assert {name: entry.role for name, entry in entries(target).items()} == expected
    assert {"generator/g/kernel", "step", "generator_optimizer/iterations"} <= expected.keys()
    step, fresh = tf.Variable(0), net("g")
    policy = {"include": ["generator/**", "step"], "on_unexpected": "ignore", "api": "read"}
    config = {"version": 1, "restore": {"path": str(target), "policy": policy}}
    tfckpt.restore(config, generator=fresh, discriminator=net("c"), step=step)
    assert int(step) == 7
    np.testing.assert_array_equal(fresh.get_weights()[0], generator.get_weights()[0])
    ended = run("convert", prefix, tmp_path / "new.npz", "--include", "data")
    assert ended.status == 2
    assert "no selected value is a tensor, and .npz can hold" in ended.err
    assert not (tmp_path / "new.npz").exists()


# --- Keras's own weights


@pytest.fixture
def builders(flavour: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    (tmp_path / "builders.py").write_text(SCRIPT.format(flavor=flavour.__name__))
    monkeypatch.syspath_prepend(tmp_path)
    yield importlib.import_module("builders")
    sys.modules.pop("builders")


@pytest.fixture(scope="module")
def of_keras_2(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[np.ndarray]]:
    """The files that tf_keras writes, and the weights in them."""
    keras = pytest.importorskip("tf_keras")
    names: dict[str, Any] = {}
    exec(SCRIPT.format(flavor="tf_keras"), names)
    model = names["build"]()
    model.train_on_batch(np.ones((2, 4)), np.ones((2, 2)))
    directory = tmp_path_factory.mktemp("keras2")
    model.save_weights(directory / "weights.h5")
    model.save(directory / "model.h5")
    model.save(directory / "model.keras")
    keras.models.save_model(model, directory / "saved_model", save_format="tf")
    model.save_weights(str(directory / "tensorflow"))
    return directory, model.get_weights()


SOURCES = ("weights.h5", "model.h5", "model.keras", "saved_model", "tensorflow")


def test_keras_loads_weights_of_every_source_of_keras_2(
    of_keras_2: Any, builders: Any, tmp_path: Path
) -> None:
    directory, weights = of_keras_2
    for number, source in enumerate(SOURCES):
        target, build = tmp_path / f"{number}.weights.h5", ("plain", "build")[number % 2 == 0]
        found = document("convert", directory / source, target, "--model", f"builders:{build}")
        assert (found["files"], found["written"]) == ([target.name], True)
        model = getattr(builders, build)()
        model.load_weights(target)
        for one, other in zip(model.get_weights(), weights, strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("flavour", ["keras3"], indirect=True)
def test_a_policy_says_what_goes_into_weights(builders: Any, tmp_path: Path) -> None:
    kernel = tf.Variable(tf.random.normal((4, 3)))
    body = tf.train.Checkpoint(kernel=kernel, bias=tf.Variable(tf.ones(3)))
    prefix = tf.train.Checkpoint(model=tf.train.Checkpoint(body=body)).write(f"{tmp_path}/old")
    target, config = tmp_path / "new.weights.h5", tmp_path / "c.yaml"
    config.write_text(
        "version: 1\npolicies:\n  p:\n    include: ['model/hidden/**']\n"
        "    rename: [{checkpoint: 'model/body/**', model: 'model/hidden/**'}]\n"
    )
    flags = ["--config", config, "--policy", "p"]
    assert run("convert", prefix, target, "--model", "builders:plain", *flags).status == 0
    model = builders.plain()
    model.load_weights(target)
    np.testing.assert_array_equal(model.get_weights()[0], kernel.numpy())


# --- safetensors, read

KERNEL = np.arange(6, dtype="float32").reshape(2, 3)
BIAS = np.arange(3, dtype="int64")
KERNEL_HEAD = {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}
HEADER: dict[str, Any] = {
    "__metadata__": {"format": "pt"},
    "dense/kernel": KERNEL_HEAD,
    "model/dense/bias": {"dtype": "I64", "shape": [3], "data_offsets": [24, 48]},
}


def write(path: Path, header: Any, data: bytes = KERNEL.tobytes() + BIAS.tobytes()) -> str:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)
    return str(path)


def test_values_and_roles_are_those_of_the_file(tmp_path: Path) -> None:
    path = write(tmp_path / "w.safetensors", HEADER)
    assert list(entries(path)) == ["model/dense/kernel", "model/dense/bias"]
    with np.load(tfckpt.convert(path, tmp_path / "w.npz")) as found:
        same(dict(found), {"dense/kernel": KERNEL, "dense/bias": BIAS})
    roles = {"tfckpt.roles": '{"model/dense/bias": "state"}'}
    path = write(tmp_path / "roles.safetensors", {**HEADER, "__metadata__": roles})
    found = {name: entry.role.value for name, entry in entries(path).items()}
    assert found == {"dense/kernel": "weight", "model/dense/bias": "state"}


@pytest.mark.parametrize(
    "header",
    [
        *(
            {**HEADER, "dense/kernel": {**KERNEL_HEAD, **fields}}
            for fields in (
                {"dtype": "F99"},
                {"shape": [2, 4]},
                {"shape": [-2, -3]},
                {"shape": [2, 3.0]},
                {"shape": None},
                {"data_offsets": [0, 28]},
                {"data_offsets": [24, 48]},
                {"data_offsets": [1, 25]},
                {"data_offsets": [0]},
            )
        ),
        b'{"a": {}, "a": {}}',
        b'{"a": ' * 100_000,
        b"{not json",
        *(
            {**HEADER, "__metadata__": {"tfckpt.roles": roles}}
            for roles in ("[]", "{", '{"a": "king"}', '{"a": []}', 7, "[" * 100_000)
        ),
    ],
    ids=lambda header: str(header)[-50:],
)
def test_a_header_that_contradicts_itself_is_damaged(tmp_path: Path, header: Any) -> None:
    with pytest.raises(DamagedCheckpointError):
        open_checkpoint(write(tmp_path / "w.safetensors", header))


def test_a_file_of_another_length_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    whole = Path(write(path, HEADER)).read_bytes()
    for end in (len(whole) - 1, len(whole) - 48, 40, 9, 8, 4, 0):
        path.write_bytes(whole[:end])
        with pytest.raises(CheckpointError):
            open_checkpoint(str(path))
    path.write_bytes(whole + b"\0")
    with pytest.raises(DamagedCheckpointError):
        open_checkpoint(str(path))


def test_shards_are_read_by_their_index(tmp_path: Path) -> None:
    """As other libraries write a large model: `model-00001-of-00002.safetensors`, and an index."""
    numpy_files = pytest.importorskip("safetensors.numpy")
    names = [f"model-{number:05d}-of-00002.safetensors" for number in (1, 2)]
    values = {"dense/kernel": KERNEL, "dense/bias": BIAS}
    for name, (key, value) in zip(names, values.items(), strict=True):
        numpy_files.save_file({key: value}, tmp_path / name)
    index = tmp_path / "model.safetensors.index.json"
    weight_map = dict(zip(values, names, strict=True))
    index.write_text(json.dumps({"metadata": {"total_size": 48}, "weight_map": weight_map}))
    assert [*entries(index)] == ["model/dense/kernel", "model/dense/bias"]
    assert [one.prefix for one in tfckpt.list_checkpoints(tmp_path)] == [str(index)]
    assert tfckpt.verify(index)[0].ok
    dense = tf.train.Checkpoint(kernel=tf.Variable(0 * KERNEL), bias=tf.Variable(0 * BIAS))
    tfckpt.restore(index, model=tf.train.Checkpoint(dense=dense))
    np.testing.assert_array_equal(dense.kernel.numpy(), KERNEL)
    np.testing.assert_array_equal(dense.bias.numpy(), BIAS)
    (tmp_path / names[1]).unlink()
    with pytest.raises(DamagedCheckpointError, match=f"{names[1]}: does not exist") as raised:
        tfckpt.inspect(index)
    assert "Copy all shards" in str(raised.value)
    for name in ("a.safetensors", "b.safetensors"):
        write(tmp_path / name, HEADER)
    index.write_text(json.dumps({"weight_map": {"x": "a.safetensors", "y": "b.safetensors"}}))
    with pytest.raises(DamagedCheckpointError, match="is in two shards"):
        open_checkpoint(str(index))


# --- rewrite


def build() -> Any:
    """Two layers, an optimizer with slots, a seed."""
    import keras

    body, head = keras.layers.Dense(3, name="body"), keras.layers.Dense(2, name="head")
    model = keras.Sequential([keras.Input((4,)), body, keras.layers.Dropout(0.5, seed=1), head])
    model.compile("adam", "mse", run_eagerly=True)
    return model


@pytest.fixture(scope="module")
def model() -> Any:
    model = build()
    model.train_on_batch(np.ones((2, 4)), np.ones((2, 2)))
    return model


@pytest.fixture(scope="module")
def source(model: Any, tmp_path_factory: pytest.TempPathFactory) -> str:
    return tfckpt.Checkpoint(model=model).save(f"{tmp_path_factory.mktemp('source')}/ckpt")


@pytest.fixture
def target(tmp_path: Path) -> str:
    return f"{tmp_path}/new-1"


def weights(model: Any) -> list[bytes]:
    return [np.asarray(weight).tobytes() for weight in model.get_weights()]


def content(prefix: str) -> dict[str, bytes]:
    place = Path(prefix)
    return {
        file.name.removeprefix(place.name): file.read_bytes()
        for file in place.parent.glob(f"{place.name}.*")
        if not file.name.endswith(".json")
    }


def test_without_changes_the_bytes_are_the_same(source: str, model: Any, tmp_path: Path) -> None:
    plain = str(tf.train.Checkpoint(model=model).save(f"{tmp_path}/plain/ckpt"))
    for number, old in enumerate((source, plain)):
        assert run("rewrite", old, tmp_path / f"new-{number}").status == 0
        assert content(f"{tmp_path}/new-{number}") == content(old)


def test_plain_tensorflow_restores_what_is_kept(source: str, target: str, model: Any) -> None:
    assert run("rewrite", source, target, "--shard_size", "20").status == 0
    assert len(list(Path(target).parent.glob("*.data-*"))) > 5
    other = build()
    tf.train.Checkpoint(model=other).restore(target).assert_existing_objects_matched()
    assert weights(other) == weights(model)
    target += "-part"
    flags = "--drop_optimizer", "--exclude", "model/head/**"
    assert run("rewrite", source, target, *flags).status == 0
    keys = tf.train.load_checkpoint(target).get_variable_to_shape_map()
    assert not any("head" in key or "optimizer/_variables" in key for key in keys)
    other = build()
    before = weights(other)
    status = tf.train.Checkpoint(model=other).read(target)
    status.assert_nontrivial_match().expect_partial()
    assert weights(other) == weights(model)[:2] + before[2:]
    with pytest.raises(AssertionError):
        status.assert_existing_objects_matched()


def test_a_layer_with_another_name_takes_its_slots_along(
    source: str, target: str, model: Any
) -> None:
    assert run("rewrite", source, target, "--rename", "model/body/**=model/trunk/**").status == 0
    with open_checkpoint(target) as new:
        names = new.inventory.entries
        assert names["optimizer/momentum/trunk/kernel"].of == "model/trunk/kernel"
        layers = new.inventory.containers["model"].layers
        assert [layer.place for layer in layers] == ["trunk", "head"]
        assert not any("body" in name for name in names)
        kernel = new.values.read(names["model/trunk/kernel"].key)
    assert kernel.tobytes() == weights(model)[0]


def test_a_policy_may_reset_the_slots(source: str, target: str, tmp_path: Path) -> None:
    config = tmp_path / "policy.yaml"
    config.write_text(
        "version: 1\npolicies:\n  b:\n    optimizer: {slots: reset, iterations: restore}\n"
        "    rename: [{checkpoint: 'model/body/*', model: 'x/*'}]\n"
    )
    assert run("rewrite", source, target, "--config", config).status == 0
    assert {"x/kernel", "x/bias", "optimizer/iterations"} <= {*entries(target)}
    assert not any("momentum" in name for name in entries(target))


def test_a_checkpoint_knows_what_it_was_made_of(source: str, target: str) -> None:
    other, mean = f"{target}1", f"{target}2"
    for prefix in (target, other):
        assert run("rewrite", source, prefix, "--include", "model/**").status == 0
    assert run("rewrite", target, mean, "--average", other).status == 0
    first, last = (
        json.loads(Path(f"{prefix}.tfckpt.json").read_text("utf-8"))["lineage"][0]
        for prefix in (target, mean)
    )
    digests = {
        prefix: hashlib.sha256(Path(f"{prefix}.index").read_bytes()).hexdigest()
        for prefix in (source, target, other)
    }
    assert [(one["path"], one["sha256"]) for one in first["sources"]] == [(source, digests[source])]
    assert first["counts"]["LOADED"] == 4
    (origin,) = last["sources"]
    shares = [(share["path"], share["sha256"], share["weight"]) for share in origin["average"]]
    assert shares == [(target, digests[target], 0.5), (other, digests[other], 0.5)]


def test_a_lookup_table_and_an_iterator_go_along(tmp_path: Path, target: str) -> None:
    def objects() -> dict[str, Any]:
        table = tf.lookup.experimental.MutableHashTable(tf.string, tf.int64, -1)
        data = iter(tf.data.Dataset.range(5))
        return {"table": table, "data": data, "step": tf.Variable(3)}

    old = objects()
    old["table"].insert(tf.constant(["a"]), tf.constant([7], tf.int64))
    next(old["data"])
    prefix = tf.train.Checkpoint(**old).write(f"{tmp_path}/old")
    assert run("rewrite", prefix, target).status == 0
    new = objects()
    tf.train.Checkpoint(**new).read(target).assert_consumed()
    assert int(new["table"].lookup(tf.constant("a"))) == 7
    assert int(next(new["data"])) == 1
    assert run("rewrite", prefix, f"{target}0", "--exclude", "table").status == 0
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
    assert run("rewrite", old, target).status == 0
    assert list(entries(target)) == sorted(entries(old))
    names = {entry.key: name for name, entry in entries(old).items()}
    root = tf.Module()
    for name, value in (("dense/kernel", kernel), ("dense/odd.name", bias)):
        place, (*path, last) = root, names[name].split("/")
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


# --- nothing is left, and nothing written over


@pytest.mark.parametrize(
    ("command", "there"),
    [
        *(("rewrite", f"new-1{end}") for end in ("", ".index", ".data-00000-of-00009")),
        ("rewrite", "new-1.tfckpt.json"),
        *(("convert", name) for name in ("a.npz", "a.safetensors", "a.weights.h5")),
    ],
)
def test_nothing_is_written_over(command: str, there: str, source: str, tmp_path: Path) -> None:
    (tmp_path / there).symlink_to("nowhere")
    target = tmp_path / there if command == "convert" else tmp_path / "new-1"
    model = ["--model", "no:model"] if there.endswith("h5") else []
    assert run(command, source, target, *model).status == 1
    assert [(file.name, file.is_symlink()) for file in tmp_path.iterdir()] == [(there, True)]


@pytest.mark.parametrize("name", ["new-1", "a.npz", "a.safetensors"])
@pytest.mark.parametrize("fails", [KeyboardInterrupt, DamagedCheckpointError])
def test_ctrl_c_and_damage_leave_nothing(
    name: str, fails: type, source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = iter(range(100))

    def read(self: Bundle, key: str, original: Callable[..., Any] = Bundle.read) -> Any:
        if next(calls) == 2:
            raise fails("a file is damaged")
        return original(self, key)

    monkeypatch.setattr(Bundle, "read", read)
    command = "convert" if "." in name else "rewrite"
    ended = run(command, source, tmp_path / name)
    assert ended.status == (130 if fails is KeyboardInterrupt else 1)
    assert not list(tmp_path.iterdir())
