"""SavedModels, TF1's first format, files that hold no training, and files exported."""

import itertools
import textwrap
from pathlib import Path

import h5py
import keras
import numpy as np
import pytest
import tensorflow as tf
from zoo.command_line import run
from zoo.graphs import dense, save, v1
from zoo.pasted import equal

import tfckpt
from tfckpt.cli.main import main
from tfckpt.errors import (
    CheckpointError,
    DamagedCheckpointError,
    RefusedError,
    UnsupportedCheckpointError,
)
from tfckpt.stored.formats.open import open_checkpoint


def read_all(path, kind=None):
    with open_checkpoint(path, roots={}) as stored:
        assert kind in (None, stored.kind)
        return {e.name: stored.values.read(e.key) for e in stored.inventory.entries.values()}


# --- SavedModels; conformance/matrix.txt has every model exported and restored ---


def sequential(k, *names):
    layers = [k.layers.Dense(4, name=name) for name in names]
    layers += [k.layers.BatchNormalization(), k.layers.Dropout(0.5)]
    model = k.Sequential([k.Input((4,)), *layers])
    draw = np.random.default_rng(0)
    model.set_weights([draw.uniform(0.1, 1.0, weight.shape) for weight in model.get_weights()])
    return model


def exported(model, directory):
    model.export(str(directory), **({"verbose": False} if isinstance(model, keras.Model) else {}))
    return str(directory)


def zeroed(model):
    model.set_weights([np.zeros(weight.shape) for weight in model.get_weights()])
    return model


def test_an_exported_model_goes_into_its_own_layers_and_no_others(flavour, tmp_path):
    written, model = (sequential(flavour, "b", "a") for _ in range(2))
    path = exported(written, tmp_path / "named")
    tfckpt.restore(path, zeroed(model), include=["model/**"])
    equal(written.weights, model.weights)
    weights = [name for name in read_all(path, "saved_model") if name.startswith("model/")]
    assert len(weights) == len(written.weights)
    path = exported(sequential(flavour, None, None), tmp_path / "unnamed")
    for names in ((None, None, None), (None, "new", None), ("new", None)):
        with pytest.raises(RefusedError):
            tfckpt.restore(path, sequential(flavour, *names), include=["model/**"])


class Subclassed(keras.Model):
    """Its attributes are called as its layers, each as the other."""

    def __init__(self):
        super().__init__()
        self.b = keras.layers.Dense(4, name="a")
        self.a = keras.layers.Dense(4, name="b")

    def call(self, inputs):
        return self.a(self.b(inputs))


def test_names_that_two_exported_values_share_are_no_names(tmp_path):
    """In a subclassed model of Keras 3, each kernel is `subclassed/kernel`."""
    written, model = Subclassed(), Subclassed()
    for each in (written, model):
        each(np.ones((1, 4)))
    before = model.get_weights()
    with pytest.raises(RefusedError, match="MISSING"):
        tfckpt.restore(exported(written, tmp_path / "model"), model, include=["model/**"])
    equal(before, model.weights)


def test_what_tf1s_builder_wrote(tmp_path):
    directory = str(tmp_path / "model")
    with tf.Graph().as_default(), v1.Session() as session:
        dense(tf.ones((1, 3)), 2, "out")
        session.run(v1.global_variables_initializer())
        builder = v1.saved_model.Builder(directory)
        builder.add_meta_graph_and_variables(session, ["serve"])
        builder.save()
        values = session.run(v1.global_variables())
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2, name="out")])
    tfckpt.restore(directory, model, policy={"assert": "consumed"})
    equal(values, model.weights)


def test_one_without_variables_says_so(tmp_path):
    (tmp_path / "saved_model.pb").write_bytes(b"")
    with pytest.raises(DamagedCheckpointError, match="is a SavedModel without variables"):
        tfckpt.Checkpoint(model=sequential(keras, None)).restore(str(tmp_path))


# --- TF1's first format ---

# Those that TensorFlow can write in this version.
DTYPES = (
    "float32", "float64", "float16", "int8", "uint8", "int16", "uint16", "int32", "int64",
    "bool", "complex64", "complex128",
)  # fmt: skip
NUMBERS = np.array([[0, 1, -1], [127, -128, 5]])


def typed():
    """Variables by turns on two devices, the parts of one as well."""
    part = itertools.count()

    def device(op):
        return f"/cpu:{next(part) % 2}" if op.type in ("VarHandleOp", "VariableV2") else ""

    texts = tf.constant([[b"a", b""], [b"x" * 300, b"\0\xff"]])
    with v1.device(device):
        v1.get_variable("string", initializer=texts, use_resource=False)
        for dtype in DTYPES:
            v1.get_variable(dtype, initializer=tf.cast(NUMBERS, dtype), use_resource=False)
        v1.get_variable("scalar", initializer=tf.constant(2.5))
        v1.get_variable("empty", initializer=tf.zeros((0, 3)))
        v1.get_variable("parted", (10, 4), partitioner=v1.fixed_size_partitioner(4))


@pytest.fixture(scope="module", params=[False, True], ids=["one file", "several files"])
def first_format(request, tmp_path_factory):
    directory = tmp_path_factory.mktemp("v1")
    path = directory / "model.ckpt-3"
    saved = save(path, typed, version=v1.train.SaverDef.V1, sharded=request.param, initial=True)
    assert (len(list(directory.glob("model*"))) > 1) == request.param
    return saved


def test_a_file_of_version_1_is_converted_by_the_lines_that_refuse_it(first_format):
    """From the prefix, from TensorFlow's name for several files, and from one of them."""
    stem = first_format.path.partition("-?")[0]
    parts = [str(path) for path in Path(stem).parent.glob("model*") if "-v2" not in path.name]
    for path in {stem, first_format.path, *parts}:
        with pytest.raises(UnsupportedCheckpointError, match="format version 1") as refused:
            open_checkpoint(path)
        lines = textwrap.dedent(refused.value.hint.partition("\n")[2])
        assert len(lines.splitlines()) == 1 + 4
        exec(lines, {})
        whole = {name: v for name, v in first_format.values.items() if "part_" not in name}
        whole["parted"] = np.concatenate(
            [first_format.values[f"parted/part_{n}"] for n in range(4)]
        )
        np.testing.assert_equal(read_all(f"{stem}-v2", "tf1_saver"), whole)
        with pytest.raises(CheckpointError, match="RestoreV2"):
            tfckpt.restore(path, sequential(keras, None))
        assert lines.splitlines()[-1] in run("inspect", path).err


def test_whatever_ends_like_a_table_is_one_error(tmp_path):
    """Also without anything in it: only its first and last bytes are looked at."""
    written = tf.train.Checkpoint(v=tf.Variable(1.0)).write(str(tmp_path / "ckpt"))
    index = Path(f"{written}.index").read_bytes()
    for content, error in ((b"\0" * 40 + index[-8:], "version 1"), (index, "is the index of")):
        (tmp_path / "odd").write_bytes(content)
        with pytest.raises(CheckpointError, match=error):
            open_checkpoint(str(tmp_path / "odd"))


def test_factors_of_keras_hub_are_left_to_its_own_loader(tmp_path):
    """As ``Backbone.save_lora_weights`` of KerasHub writes them, by the index of a layer."""
    path = str(tmp_path / "gemma.lora.h5")
    with h5py.File(path, "w") as file:
        file["lora/vars/rank"] = 2
        file["lora/3/vars/lora_kernel_a"] = np.zeros((4, 2))
    with pytest.raises(UnsupportedCheckpointError, match="KerasHub") as refused:
        tfckpt.restore(path, sequential(keras, None))
    assert f"`model.backbone.load_lora_weights({path!r})`" in str(refused.value)


# --- Files that hold no training ---


def recurrent(k, *, stateful):
    model = k.Sequential(
        [
            k.layers.LSTM(3, stateful=stateful, return_sequences=True),
            k.layers.GRU(2, stateful=stateful),
            k.layers.Dense(2),
        ]
    )
    model(np.zeros((2, 5, 3), "float32"))
    return model


COUNTLESS = {  # in a file of Keras, there is no counter ever
    "h5": lambda model, path: model.save_weights(path) or [],
    "tensorflow": lambda model, path: tf.train.Checkpoint(model=model).write(path) and [COUNTS],
    "export": lambda model, path: tf.saved_model.save(model, path) or [COUNTS],
}
COUNTS = "taken as api: read, because the checkpoint counts no saves"


@pytest.mark.parametrize(
    ("write", "k"),
    [("h5", "tf_keras"), ("tensorflow", "tf_keras"), ("tensorflow", "keras"), ("export", "keras")],
)
def test_a_file_of_weights_needs_no_policy(write, k, tmp_path):
    """Nor does a stateful model miss the states of recurrent layers, which are no weights."""
    k = pytest.importorskip(k)
    first, model = recurrent(k, stateful=False), recurrent(k, stateful=True)
    path = str(tmp_path / f"w.weights.{write}")
    wanted = COUNTLESS[write](first, path)
    report = tfckpt.from_config({"version": 1, "restore": {"path": path}}, model).restore()
    equal(first.weights, model.trainable_weights)
    assert [s.reason for s in report.plan.steps if s.name == "save_counter"] == wanted
    states = [step for step in report.plan.steps if "/states/" in step.name]
    assert states
    assert {(str(step.status), str(step.entry.role)) for step in states} == {("MISSING", "state")}
    if write == "tensorflow":
        source = {"path": path, "policy": {"api": "restore"}}
        with pytest.raises(RefusedError, match="its writer does not count"):
            tfckpt.from_config({"version": 1, "restore": source}, model).restore()


# --- Files exported ---


def test_what_is_exported_holds_the_same(corpus, tmp_path):
    number = 0
    files = (path for end in ("index", "keras", "h5") for path in sorted(corpus.rglob(f"*.{end}")))
    for path in (str(path).removesuffix(".index") for path in files):
        try:
            stored = open_checkpoint(path)
        except CheckpointError:
            continue
        target, number = f"{tmp_path}/{number}.npz", number + 1
        status = main(["tfckpt", "export", path, target])
        with stored:
            if stored.values.missing_files:
                assert status == 1, path
                continue
            entries = [e for e in stored.inventory.entries.values() if e.shape is not None]
            numbers = {e.name: stored.values.read(e.key) for e in entries if e.dtype != "string"}
        assert status == 0, path
        with np.load(target) as found:
            assert {*found} == {*numbers}, path
            for name, value in numbers.items():
                assert found[name].dtype == value.dtype, name
                assert found[name].tobytes() == value.tobytes(), name
    assert number > 30
