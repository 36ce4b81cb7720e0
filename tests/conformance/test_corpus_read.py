"""Real checkpoints that other people wrote: read, shown, and restored into models built anew."""

import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from zoo.command_line import document, run
from zoo.corpus import CORPUS, ITEMS, PROJECT, digest, expected_of, prefix_of
from zoo.optimizers import compiled
from zoo.pasted import answered, pasted
from zoo.rebuilt import autoencoder, basic_pitch, deepconsensus, dense, music
from zoo.variables import inner

import tfckpt
from tfckpt.errors import DamagedCheckpointError
from tfckpt.stored.bundles.bundle import Bundle

OTHER_FORMATS = ("tf1_saver_v1", "h5", "keras_v3")
BUNDLES = [name for name, item in ITEMS.items() if item["kind"] not in OTHER_FORMATS]


@pytest.fixture(autouse=True)
def _needs(corpus):
    """Skips, saying so, where the corpus is absent."""


def path_of(name):
    item = ITEMS[name]
    return f"{CORPUS / name}/{item['prefix'] if 'prefix' in item else next(iter(item['files']))}"


def absent(name):
    return {f"{CORPUS / name}/{file}" for file in ITEMS[name]["absent_files"]}


# --- Reading ---


def test_the_corpus_is_whole():
    assert len(BUNDLES) >= 36
    assert len(ITEMS) - len(BUNDLES) >= 4


@pytest.mark.parametrize("name", BUNDLES)
def test_a_bundle_reads_as_tensorflow_reads_it(name):
    expected = expected_of(name)
    with Bundle.open(prefix_of(name)) as bundle:
        assert set(bundle.missing_files) == absent(name)
        if ITEMS[name]["tf_lists"]:
            assert {key: (e.dtype, list(e.shape)) for key, e in bundle.entries.items()} == {
                key: (e["dtype"], e["shape"]) for key, e in expected.items()
            }
        for key, entry in bundle.entries.items():
            want = expected.get(key, {"error": "TensorFlow does not list it"})
            if "error" in want:
                with pytest.raises(DamagedCheckpointError, match="missing") as caught:
                    bundle.read(key)
                assert caught.value.path in absent(name)
                assert caught.value.name == key
            else:
                assert digest(bundle.read(key), entry.dtype) == want["sha256"], key
        if absent(name):
            with pytest.raises(DamagedCheckpointError, match="missing"):
                bundle.verify(bundle.entries)
        else:
            bundle.verify(bundle.entries)


def test_the_whole_corpus_is_read_without_tensorflow():
    code = (
        "import sys; from tfckpt.stored.bundles.bundle import Bundle\n"
        "for prefix in sys.argv[1:]:\n"
        "    bundle = Bundle.open(prefix)\n"
        "    if not bundle.missing_files:\n"
        "        for key in bundle.entries: bundle.read(key)\n"
        "print('tensorflow' in sys.modules)\n"
    )
    command = [sys.executable, "-c", code, *map(prefix_of, BUNDLES)]
    out = subprocess.run(command, capture_output=True, text=True, check=True, cwd=PROJECT)
    assert out.stdout == "False\n"


@pytest.mark.parametrize("name", [n for n in ITEMS if ITEMS[n]["kind"] == "tf1_saver_v1"])
def test_a_file_of_version_1_is_refused(name):
    for command in ("inspect", "verify"):
        ended = run(command, path_of(name))
        assert ended.status == 1
        assert "tf.raw_ops.SaveV2(" in ended.out + ended.err


@pytest.mark.parametrize("name", [n for n in ITEMS if ITEMS[n]["kind"] != "tf1_saver_v1"])
def test_inspect_in_every_view_and_verify(name):
    path, status = path_of(name), 1 if absent(name) else 0
    found = document("inspect", path, "--values", status=status)
    by_key = {value["key"]: value for value in found["values"]}
    for key, tensor in expected_of(name).items():
        if key in by_key and "error" not in tensor and by_key[key]["shape"] is not None:
            assert by_key[key]["shape"] == tensor["shape"], key
    for flags in ((), ("--values",), ("--keys",)):
        ended = run("inspect", path, *flags)
        assert ended.status == status
        assert "Traceback" not in ended.err
        long = [line for line in ended.out.splitlines() if len(line) > 80]
        assert all(len(line.split()) == 1 for line in long), long  # a name, which is never broken
    (verified,) = document("verify", path, status=status)["checkpoints"]
    if absent(name):
        assert {fault["file"] for fault in verified["faults"]} == absent(name)
        return
    assert verified["values"] > 0
    known = {name for name, one in found["statistics"].items() if one and "error" not in one}
    numbers = [value for value in found["values"] if value["dtype"].startswith("float")]
    assert known >= {value["name"] for value in numbers}


# --- Models: which key each weight has in the file, in the model's order ---

VALUE = "/.ATTRIBUTES/VARIABLE_VALUE"
WORDS = ("kernel", "bias")


def layered(below=""):
    """Keys in Keras 2's files, of a functional or sequential model."""

    def keys(model):
        return [
            f"{below}layer_with_weights-{n}/{'cell/' if hasattr(layer, 'cell') else ''}"
            f"{variable.name.removesuffix(':0').rpartition('/')[2]}{VALUE}"
            for n, layer in enumerate(layer for layer in model.layers if layer.weights)
            for variable in layer.weights
        ]

    return keys


def named(*keys):
    return lambda model: keys


def denses(*sizes, **more):
    return lambda k: dense(k, *sizes, **more)


TEST_NAMES = ("test_in", None, "test_out")
HIDDEN = [f"dnn/{name}" for name in (*(f"hiddenlayer_{n}" for n in range(4)), "logits")]
PARTS = [
    f"{part}/layer_with_weights-{n}"
    for part, e in (("encoder", 3), ("decoder", 4))
    for n in range(e)
]
MODELS = {
    "tf2_lstm_md_configjson": (music, layered()),
    "tf2_deepconsensus_fc": (deepconsensus, layered("model/")),
    "sm_tfx_keras": (denses(4, 8, 8, 3), layered()),
    "tuner_tfx_iris": (denses(4, 8, 8, 8, 3), layered()),
    "sm_basic_pitch": (basic_pitch, layered()),
    "sm_rust_keras_single": (denses(5, 5, 5, 1, names=TEST_NAMES), layered()),
    "h5_rl_deep_sarsa": (
        denses(15, 30, 30, 5),
        named(*(f"dense_{n}/dense_{n}/{word}:0" for n in (1, 2, 3) for word in WORDS)),
    ),
    "h5_rl_drqn": (
        lambda k: k.Sequential([k.Input((None, 2)), k.layers.LSTM(32), k.layers.Dense(2)]),
        named(
            *(f"lstm_1/lstm_1/{word}:0" for word in ("kernel", "recurrent_kernel", "bias")),
            *(f"dense_1/dense_1/{word}:0" for word in WORDS),
        ),
    ),
    "k3_nlf": (
        denses(40, 256, 256, 1),
        named(*(f"layers/dense{n}/vars/{at}" for n in ("", "_1", "_2") for at in (0, 1))),
    ),
    "tf1_tfx_est_keras_opt": (
        denses(3, 100, 70, 48, 34, 1),
        named(*(f"{name}/{word}" for name in HIDDEN for word in WORDS)),
    ),
    "tf2_vae_cardio": (
        autoencoder,
        named(*(f"{part}/{word}{VALUE}" for part in PARTS for word in WORDS)),
    ),
}
# A layer that has a name of its own in the file, and another one in the model, or none.
ASKED = (
    ("sm_rust_keras_single", "named"),
    ("sm_rust_keras_single", "attributes"),
    ("sm_basic_pitch", "attributes"),
)


def holds(name, keys, variables):
    """Each variable is, bit for bit, what stands under its key."""
    expected = expected_of(name)
    for key, variable in zip(keys, variables, strict=True):
        value = np.asarray(inner(variable))
        assert list(value.shape) == expected[key]["shape"], key
        assert digest(value, expected[key]["dtype"]) == expected[key]["sha256"], key


def with_names(k, model):
    """The same layers, each with a name that somebody chose."""
    numbers = iter(range(99))

    def clone(layer):
        name = {"name": f"own_{next(numbers):02}"} if layer.weights else {}
        return type(layer).from_config({**layer.get_config(), **name})

    return k.models.clone_model(model, clone_function=clone)


def with_attributes(k, model):
    """The same layers as attributes of a subclassed model."""
    made = {}
    for number, layer in enumerate(each for each in model.layers if each.weights):
        config = {key: value for key, value in layer.get_config().items() if key != "name"}
        made[f"part{number:02}"] = new = type(layer).from_config(config)
        new.build(layer.get_build_config()["input_shape"])
    return holding(k, **made)


def holding(k, **parts):
    class Own(k.Model):
        def __init__(self):
            super().__init__()
            for name, part in parts.items():
                setattr(self, name, part)
            self.built = True

        def call(self, x):
            return x

    return Own()


HOW = {"automatic": None, "named": with_names, "attributes": with_attributes}


@pytest.mark.parametrize(
    ("how", "k"),
    [("automatic", keras), ("named", keras), ("attributes", keras), ("named", tf_keras)],
)
@pytest.mark.parametrize("name", MODELS)
def test_a_rebuilt_model_is_restored_at_first_try_or_by_pasting(name, how, k):
    build, keys = MODELS[name]
    model, change = build(k), HOW[how]
    wanted = keys(model)
    if change and hasattr(model, "encoder"):
        first, second = ("encoder", "decoder") if how == "named" else ("first", "second")
        halves = {first: change(k, model.encoder), second: change(k, model.decoder)}
        model = holding(k, **halves)
    elif change:
        model = change(k, model)
    if (name, how) in ASKED:
        answered(path_of(name), model)
    else:
        pasted(path_of(name), model)
    holds(name, wanted, model.weights)


ADAM = {"m": "momentum", "v": "velocity"}
TF1_ADAM = {f"optimizer/{word}": slot for word, slot in ADAM.items()}
CONFIG = {"optimizer": {"hyperparameters": "config"}}
POWERS = {**CONFIG, "exclude_checkpoint": ["optimizer/beta?_power"]}
TRAINED = {
    "tf2_lstm_md_configjson": (TF1_ADAM, "optimizer/global_step", POWERS),
    "tf2_deepconsensus_fc": (ADAM, "optimizer/iter", CONFIG),
    "sm_tfx_keras": (ADAM, "optimizer/iter", CONFIG),
    "sm_rust_keras_single": (ADAM, "optimizer/iter", CONFIG),
    "tuner_tfx_iris": (ADAM, "optimizer/iter", CONFIG),
}


@pytest.mark.parametrize("name", TRAINED)
def test_a_trained_model_goes_on_with_its_slots(name, flavour):
    build, keys = MODELS[name]
    slots, step, policy = TRAINED[name]
    model = compiled(build(flavour), flavour.optimizers.Adam(1e-3))
    tfckpt.restore(path_of(name), model, policy={"api": "read", **policy})
    variables = dict(zip(keys(model), model.weights, strict=True))
    trained = {id(inner(variable)) for variable in model.trainable_weights}
    wanted = {**variables, f"{step}{VALUE}": model.optimizer.iterations}
    lists = model.optimizer._momentums, model.optimizer._velocities
    for word, held in zip(slots, lists, strict=True):
        ours = [key for key, variable in variables.items() if id(inner(variable)) in trained]
        by_key = zip(ours, (slot for slot in held if hasattr(slot, "assign")), strict=True)
        slot_of = f"/.OPTIMIZER_SLOT/optimizer/{word}{VALUE}"
        wanted |= {key.removesuffix(VALUE) + slot_of: slot for key, slot in by_key}
    holds(name, wanted, wanted.values())
    if policy is POWERS:
        # What TF1 kept as numbers, Keras computes from the step: it is the same step.
        steps = int(inner(model.optimizer.iterations)) + 1
        stored = tf.train.load_variable(path_of(name), f"optimizer/optimizer/beta1_power{VALUE}")
        assert stored == pytest.approx(0.9**steps, rel=1e-3, abs=1e-30)
