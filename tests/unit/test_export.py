"""`tfckpt export`: what NumPy, Keras and TensorFlow find. Safetensors of others, read."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors
import tensorflow as tf
from zoo.command_line import run
from zoo.tensors import DTYPES, random_array

import tfckpt
from tfckpt.errors import DamagedCheckpointError
from tfckpt.stored.bundles.bundle import Bundle
from tfckpt.stored.formats.open import open_checkpoint

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
    for suffix, dtypes in (("npz", ARRAYS), ("safetensors", TENSORS)):
        content = random_values(dtypes)
        prefix = save(f"{tmp_path}/{suffix}", content)
        files = [tmp_path / f"{name}.{suffix}" for name in "ab"]
        assert [run("export", prefix, file).status for file in files] == [0, 0]
        assert files[0].read_bytes() == files[1].read_bytes()
        assert files[0].stat().st_mode == Path(f"{prefix}.index").stat().st_mode
        if suffix == "npz":
            with np.load(files[0], allow_pickle=False) as archive:
                same(dict(archive), content)
            continue
        found = {}
        for name, info in safetensors.deserialize(files[0].read_bytes()):
            dtype = content[name.removeprefix("model/")].dtype
            found[name] = np.frombuffer(bytes(info["data"]), dtype).reshape(info["shape"])
        same(found, content)


def test_what_holds_no_numbers_is_left_out_and_said(tmp_path: Path) -> None:
    objects = {"data": iter(tf.data.Dataset.range(3)), "words": tf.Variable(["a", "b"])}
    prefix = tfckpt.Checkpoint(step=tf.Variable(7), **objects).save(f"{tmp_path}/run/ckpt")
    ended = run("export", prefix, target := tmp_path / "all.safetensors")
    assert ended.out == f"{target}: written\n"
    assert "left out, since it holds only numbers: data, words" in ended.err
    assert entries(target)["step"].role == "state"
    tfckpt.restore(target, step=(step := tf.Variable(0)), on_unexpected="ignore")
    assert int(step) == 7


@pytest.mark.parametrize(
    ("suffix", "dtype"),
    [
        *((".npz", dtype) for dtype in ("bfloat16", "float8_e5m2", "int4")),
        *((".safetensors", dtype) for dtype in ("complex128", "uint4")),
    ],
)
def test_a_number_that_a_format_cannot_hold_is_refused(
    suffix: str, dtype: str, tmp_path: Path
) -> None:
    prefix = save(f"{tmp_path}/a/old", random_values([dtype]))
    with pytest.raises(tfckpt.UnsupportedCheckpointError, match=f"{suffix} cannot hold {dtype}"):
        tfckpt.export(prefix, tmp_path / f"new{suffix}")
    assert [file.name for file in tmp_path.iterdir()] == ["a"]


def test_without_the_package_the_line_that_installs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prefix = save(f"{tmp_path}/old", random_values(["float32"]))
    monkeypatch.setitem(sys.modules, "safetensors", None)
    with pytest.raises(tfckpt.NotInstalledError, match=r"pip install 'tfckpt\[safetensors\]'"):
        tfckpt.export(prefix, tmp_path / "new.safetensors")


# --- with a model


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


def test_keras_and_tensorflow_load_weights_of_every_source_of_keras_2(
    of_keras_2: Any, builders: Any, tmp_path: Path
) -> None:
    directory, weights = of_keras_2
    for source in ("weights.h5", "model.h5", "model.keras", "saved_model", "tensorflow"):
        target, prefix = tmp_path / f"{source}.weights.h5", f"{tmp_path}/new/{source}-1"
        for new in (target, prefix):
            ended = run("export", directory / source, new, "--model", "builders:plain")
            assert ended.status == 0, ended.err
        models = [builders.plain() for _ in range(2)]
        models[0].load_weights(target)
        status = tf.train.Checkpoint(model=models[1]).read(prefix)
        status.assert_existing_objects_matched()
        for model in models:
            for one, other in zip(model.get_weights(), weights, strict=True):
                np.testing.assert_array_equal(one, other)


def test_a_policy_or_a_config_says_what_goes_into_weights(builders: Any, tmp_path: Path) -> None:
    kernel = tf.Variable(tf.random.normal((4, 3)))
    body = tf.train.Checkpoint(kernel=kernel, bias=tf.Variable(tf.ones(3)))
    prefix = tf.train.Checkpoint(model=tf.train.Checkpoint(body=body)).write(f"{tmp_path}/old")
    refused = run("export", prefix, tmp_path / "new.weights.h5", "--model", "builders:plain")
    assert refused.status == 1
    assert "nothing was restored" in refused.err
    keys = {
        "include": ["model/hidden/**"],
        "rename": [{"checkpoint": "model/body/**", "model": "model/hidden/**"}],
    }
    policy, config = tmp_path / "policy.yaml", tmp_path / "config.yaml"
    policy.write_text(json.dumps(keys))
    config.write_text(json.dumps({"version": 1, "restore": {"path": prefix, "policy": keys}}))
    for name, *more in (("p", prefix, "--policy", policy), ("c", config)):
        source, *flags = more
        target = tmp_path / f"{name}.weights.h5"
        ended = run("export", source, target, "--model", "builders:plain", *flags)
        assert ended.status == 0, ended.err
        model = builders.plain()
        model.load_weights(target)
        np.testing.assert_array_equal(model.get_weights()[0], kernel.numpy())


# --- nothing is left, and nothing written over


@pytest.mark.parametrize(("target", "there"), [("a.npz", "a.npz"), ("new-1", "new-1.index")])
def test_nothing_is_written_over(target: str, there: str, tmp_path: Path) -> None:
    source, place = save(f"{tmp_path}/a/old", random_values(["float32"])), tmp_path / "b"
    place.mkdir()
    (place / there).symlink_to("nowhere")
    model = [] if target.endswith("npz") else ["--model", "no:model"]
    ended = run("export", source, place / target, *model)
    assert (ended.status, "already exists and is not overwritten" in ended.err) == (1, True)
    assert [(file.name, file.is_symlink()) for file in place.iterdir()] == [(there, True)]


@pytest.mark.parametrize(
    ("name", "fails"),
    [("a.npz", KeyboardInterrupt), ("a.safetensors", DamagedCheckpointError)],
)
def test_ctrl_c_and_damage_leave_nothing(
    name: str, fails: type, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, place = save(f"{tmp_path}/a/old", random_values(["float32"])), tmp_path / "b"
    calls = iter(range(100))

    def read(self: Bundle, key: str, original: Callable[..., Any] = Bundle.read) -> Any:
        if next(calls) == 2:
            raise fails("a file is damaged")
        return original(self, key)

    monkeypatch.setattr(Bundle, "read", read)
    ended = run("export", source, place / name)
    assert ended.status == (130 if fails is KeyboardInterrupt else 1)
    assert not list(place.iterdir())


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
    with np.load(tfckpt.export(path, tmp_path / "w.npz")) as found:
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
                {"shape": [2, 3.0]},
                {"data_offsets": [0, 28]},
                {"data_offsets": [24, 48]},
                {"data_offsets": [1, 25]},
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
