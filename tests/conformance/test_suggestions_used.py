"""Suggestions as people use them, and where they are shown."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import keras
import numpy as np
import pytest
from conformance.test_corpus_read import VALUE, Item, check_weights
from zoo import command_line
from zoo.corpus import CORPUS as FOLDER
from zoo.corpus import ITEMS, digest, expected_of, prefix_of
from zoo.pairs.build import Built, NotAModelError, start_anew
from zoo.pairs.cases import case
from zoo.pairs.verdicts import LEFT, MISPLACED, REFUSED, SUSPECT, _Judging, _save
from zoo.pasted import equal, pasted
from zoo.rebuilt import autoencoder, basic_pitch, deepconsensus, dense, music
from zoo.variables import inner

import tfckpt

if TYPE_CHECKING:
    from collections.abc import Callable


LAYERS = keras.layers
ORDINALS = [
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
]


def renamed(k: Any, model: Any) -> Any:
    """The same layers, each with a name that somebody chose."""
    names = iter(ORDINALS)

    def clone(layer: Any) -> Any:
        config = layer.get_config()
        if layer.weights:
            config["name"] = next(names)
        return type(layer).from_config(config)

    return k.models.clone_model(model, clone_function=clone)


def attributed(k: Any, model: Any) -> Any:
    """The same layers as attributes of a subclassed model."""

    class Own(k.Model):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            weighty = [layer for layer in model.layers if layer.weights]
            for name, layer in zip(ORDINALS, weighty, strict=False):
                config = {k: v for k, v in layer.get_config().items() if k != "name"}
                made = type(layer).from_config(config)
                made.build(layer.get_build_config()["input_shape"])
                setattr(self, name, made)
            self.built = True

        def call(self, x: Any) -> Any:
            return x

    return Own()


CORPUS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "tf2_lstm_md_configjson": (music, ""),
    "tf2_deepconsensus_fc": (deepconsensus, "model/"),
    "sm_tfx_keras": (lambda k: dense(k, 4, 8, 8, 3), ""),
    "tuner_tfx_iris": (lambda k: dense(k, 4, 8, 8, 8, 3), ""),
    "sm_basic_pitch": (basic_pitch, ""),
    "sm_rust_keras_single": (
        lambda k: dense(k, 5, 5, 5, 1, names=("test_in", None, "test_out")),
        "",
    ),
}


@pytest.mark.parametrize("name", CORPUS)
def test_the_corpus_with_automatic_names(name: str, flavour: Any, corpus: Any) -> None:
    build, below = CORPUS[name]
    item, model = Item(name), build(flavour)
    pasted(item.path, model)
    check_weights(item, model, below)


@pytest.mark.parametrize("name", CORPUS)
def test_the_corpus_with_names_of_ones_own(name: str, flavour: Any, corpus: Any) -> None:
    build, below = CORPUS[name]
    item, model = Item(name), renamed(flavour, build(flavour))
    pasted(item.path, model)
    check_weights(item, model, below)


# Two or three of their layers have equal shapes, and attributes say nothing of the order.
ALIKE = {"tuner_tfx_iris", "sm_rust_keras_single"}


@pytest.mark.parametrize("name", CORPUS)
def test_the_corpus_with_attributes(name: str, flavour: Any, corpus: Any) -> None:
    build, below = CORPUS[name]
    item, model = Item(name), attributed(flavour, build(flavour))
    if name in ALIKE:
        with pytest.raises(tfckpt.RefusedError, match="neither names nor order") as refused:
            tfckpt.restore(item.path, model)
        assert refused.value.suggestion is None
    else:
        pasted(item.path, model)
        check_weights(item, model, below)


# Files of another form: which key each weight of the model has there, in the model's order.
WORDS = ("kernel", "bias")
HIDDEN = [f"hiddenlayer_{n}" for n in range(4)]
KEYED: dict[str, tuple[Callable[[Any], Any], list[str]]] = {
    "h5_rl_deep_sarsa": (
        lambda k: dense(k, 15, 30, 30, 5),
        [f"dense_{n}/dense_{n}/{word}:0" for n in (1, 2, 3) for word in WORDS],
    ),
    "h5_rl_drqn": (
        lambda k: k.Sequential([k.Input((None, 2)), k.layers.LSTM(32), k.layers.Dense(2)]),
        [
            *(f"lstm_1/lstm_1/{word}:0" for word in ("kernel", "recurrent_kernel", "bias")),
            *(f"dense_1/dense_1/{word}:0" for word in WORDS),
        ],
    ),
    "k3_nlf": (
        lambda k: dense(k, 40, 256, 256, 1),
        [f"layers/{name}/vars/{n}" for name in ("dense", "dense_1", "dense_2") for n in (0, 1)],
    ),
    "tf1_tfx_est_keras_opt": (
        lambda k: dense(k, 3, 100, 70, 48, 34, 1),
        [f"dnn/{name}/{word}" for name in (*HIDDEN, "logits") for word in WORDS],
    ),
    "tf2_vae_cardio": (
        autoencoder,
        [
            f"{part}/layer_with_weights-{n}/{word}{VALUE}"
            for part, layers in (("encoder", 3), ("decoder", 4))
            for n in range(layers)
            for word in WORDS
        ],
    ),
}


def both(k: Any, **halves: Any) -> Any:
    """A subclassed model of two others."""

    class Own(k.Model):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            for name, half in halves.items():
                setattr(self, name, half)
            self.built = True

        def call(self, x: Any) -> Any:
            return x

    return Own()


def rebuilt(k: Any, how: str, model: Any) -> Any:
    if how == "automatic":
        return model
    if not hasattr(model, "encoder"):
        return renamed(k, model) if how == "named" else attributed(k, model)
    if how == "named":
        return both(k, encoder=renamed(k, model.encoder), decoder=renamed(k, model.decoder))
    return both(k, first=attributed(k, model.encoder), second=attributed(k, model.decoder))


@pytest.mark.parametrize("how", ["automatic", "named", "attributes"])
@pytest.mark.parametrize("name", KEYED)
def test_other_files_of_the_corpus(name: str, how: str, flavour: Any, corpus: Any) -> None:
    build, keys = KEYED[name]
    model = rebuilt(flavour, how, build(flavour))
    item = ITEMS[name]
    path = prefix_of(name) if "prefix" in item else str(FOLDER / name / Path(item["path"]).name)
    pasted(path, model)
    expected = expected_of(name)
    for key, variable in zip(keys, model.weights, strict=True):
        value = np.asarray(inner(variable))
        assert list(value.shape) == expected[key]["shape"], key
        assert digest(value, expected[key]["dtype"]) == expected[key]["sha256"], key


class Normed(keras.Model):
    def __init__(self, **kept: Any) -> None:
        super().__init__()
        for name, each in kept.items():
            setattr(self, name, each)
        self.body = LAYERS.Dense(3)
        self.built = True
        for layer in self._flatten_layers(include_self=False):
            layer.build((None, 3))

    def call(self, x: Any) -> Any:
        return x


def test_a_layer_moves_from_an_attribute_into_a_list(tmp_path: Any) -> None:
    """The file has its weights by number alone."""
    first = Normed(scaling=LAYERS.LayerNormalization(name="a"))
    first.set_weights(
        [np.random.default_rng(n).random(v.shape) for n, v in enumerate(first.weights)]
    )
    path = str(tmp_path / "first.weights.h5")
    first.save_weights(path)
    second = Normed(norms=[LAYERS.LayerNormalization(name="b")])
    pasted(path, second)
    equal(first.scaling.weights, second.norms[0].weights)
    equal(first.body.weights, second.body.weights)


def recurrent(k: Any, name: str, *, stateful: bool) -> Any:
    """Two cells with seeds of their own, in Keras 3, and a Dropout."""
    lstm = k.layers.LSTM(4, stateful=stateful, dropout=0.1)
    layers = [
        k.layers.Dropout(0.2, name=f"{name}_dropout", seed=len(name)),
        k.layers.Bidirectional(lstm, name=name),
        k.layers.Dense(2, name="out"),
    ]
    return k.Sequential([k.Input((5, 3), batch_size=2), *layers])


@pytest.mark.parametrize("match", [{}, {"match": "structure"}])
@pytest.mark.parametrize("how", ["tfckpt", ".weights.h5"])
@pytest.mark.parametrize("stateful", [False, True])
def test_a_renamed_recurrent_layer_keeps_its_seeds(
    match: Any, how: str, stateful: bool, flavour: Any, tmp_path: Any
) -> None:
    saved = recurrent(flavour, "encoder", stateful=stateful)
    saved(np.ones((2, 5, 3), "float32"), training=True)  # seeds and states move
    path = str(tmp_path / f"saved{how}")
    if how == "tfckpt":
        path = tfckpt.Checkpoint(model=saved).write(path)
    else:
        saved.save_weights(path)
    model = recurrent(flavour, "body", stateful=stateful)
    if match:
        dropout = {"checkpoint": "seed/encoder_dropout", "model": "seed/body_dropout"}
        renamed = how == "tfckpt" and flavour is keras
        rename = {"rename": [dropout]} if renamed else {}  # the position of its seed is unknown
        tfckpt.restore(path, model, policy={**match, **rename})
    else:
        pasted(path, model)
    equal((inner(each) for each in saved.weights), model.weights)
    if how == "tfckpt" and flavour is keras:
        equal((variable.numpy() for variable in saved.variables), model.variables)


MORE = [pytest.param(range(n, n + 100), marks=pytest.mark.long) for n in range(40, 540, 100)]


@pytest.mark.parametrize("starts", [range(40), *MORE])
def test_no_edit_of_a_model_makes_a_suggestion_wrong(starts: range, tmp_path: Any) -> None:
    import tf_keras

    found = {
        start: word
        for start in starts
        if (word := by_suggestion(start, (keras, tf_keras)[start % 2])) in WRONG
    }
    assert not found


WRONG = (MISPLACED, LEFT, REFUSED, SUSPECT)


def by_suggestion(start: int, flavor: Any) -> str:
    """What becomes of a random pair of models; "" where nothing is suggested."""
    import tempfile

    pair = case(flavor.__name__, start)
    with tempfile.TemporaryDirectory() as place:
        try:
            start_anew(flavor)
            first = Built(flavor, pair.first, tokens=pair.tokens, seed=1)
            path = _save(first, pair.writer, f"{place}/ckpt")
            if pair.anew:
                start_anew(flavor)
            second = Built(flavor, pair.second, tokens=pair.tokens, seed=2)
        except NotAModelError:
            return ""
        judging = _Judging(pair, first, second, path)
        fresh = second.values()
        try:
            found = tfckpt.suggest(path, second.model)
        except tfckpt.TfckptError:  # a model without weights, or one that is not built
            return ""
        if found is None or found.policy is None:
            return ""
        second.assign(fresh)
        restore = lambda: tfckpt.restore(path, second.model, policy=found.policy)  # noqa: E731
        return judging._verdict("suggestion", restore).word


SCRIPT = """
import {keras} as keras

def build():
    layers = [keras.layers.Dense(8, name="stem"), keras.layers.Dense({classes}, name="head")]
    return keras.Sequential([keras.Input((4,)), *layers])
"""
LINES = (
    'rename: [{checkpoint: "model/body/**", model: "model/stem/**"}]',
    'exclude: ["model/head/**"]',
)


def build(k: Any, body: str, classes: int) -> Any:
    layers = [k.layers.Dense(8, name=body), k.layers.Dense(classes, name="head")]
    return k.Sequential([k.Input((4,)), *layers])


@pytest.fixture
def saved(flavour: Any, tmp_path: Any, monkeypatch: Any) -> Any:
    """A checkpoint of a model with a body and three classes; a script that has other ones."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    for module in ("script", "other", "same"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    Path("script.py").write_text(SCRIPT.format(keras=flavour.__name__, classes=5))
    model = build(flavour, "body", 3)
    tfckpt.Checkpoint(model=model).save("ckpt")
    return model


def holds(model: Any, saved: Any) -> None:
    for one, other in zip(model.layers[0].weights, saved.layers[0].weights, strict=True):
        np.testing.assert_array_equal(inner(one).numpy(), inner(other).numpy())


def test_a_refusal_ends_with_it_and_has_it_as_a_policy(saved: Any, flavour: Any) -> None:
    model = build(flavour, "stem", 5)
    with pytest.raises(tfckpt.RefusedError) as refused:
        tfckpt.restore("ckpt-1", model)
    report, _, call = str(refused.value).partition("\n\nin Python:\n\n")
    assert "this policy restores 2 of 4 values; model/head stays new:" in report
    assert [line.strip() for line in report.splitlines()[-2:]] == list(LINES)
    untouched = model.get_layer("stem").get_weights()
    eval(call.strip().replace("…", "model"), {"tfckpt": tfckpt, "model": model})
    holds(model, saved)
    model.get_layer("stem").set_weights(untouched)
    tfckpt.restore("ckpt-1", model, policy=refused.value.suggestion)
    holds(model, saved)


def test_the_drop_in_shows_two_lines_of_python(saved: Any, flavour: Any) -> None:
    model = build(flavour, "stem", 5)
    with pytest.raises(tfckpt.RefusedError) as refused:
        tfckpt.Checkpoint(model=model).restore("ckpt-1")
    policy, call = (line.strip() for line in str(refused.value).splitlines()[-2:])
    names: dict[str, Any] = {}
    exec(policy, names)
    assert call == "tfckpt.restore('ckpt-1', model=…, policy=policy)"
    tfckpt.restore("ckpt-1", model=model, policy=names["policy"])
    holds(model, saved)


def test_a_refused_callback_ends_with_the_call_that_takes_it(saved: Any, flavour: Any) -> None:
    directory, x = "runs/a run", np.ones((8, 4), "float32")
    saved.compile("sgd", "mse")
    saved.fit(x, x[:, :3], verbose=0, callbacks=[tfckpt.callbacks.resume(saved, directory)])
    model = build(flavour, "stem", 5)
    model.compile("sgd", "mse")
    with pytest.raises(tfckpt.RefusedError) as refused:
        model.fit(x, np.ones((8, 5)), callbacks=[tfckpt.callbacks.resume(model, directory)])
    (call,) = (line.strip() for line in str(refused.value).partition("\n\nin Python:\n\n")[2:])
    assert call.startswith("tfckpt.callbacks.resume(model, 'runs/a run', policy={")
    callback = eval(call, {"tfckpt": tfckpt, "model": model})
    model.fit(x, np.ones((8, 5)), verbose=0, callbacks=[callback])
    holds(model, saved)


def test_plan_writes_a_config_that_works(saved: Any, flavour: Any) -> None:
    arguments = "plan", "ckpt-1", "--model", "script:build", "--write", "c.yaml"
    ended = command_line.run(*arguments)
    assert (ended.status, ended.err) == (0, "c.yaml: written\n")
    assert [line.strip() for line in ended.out.splitlines()[-2:]] == list(LINES)
    model = build(flavour, "stem", 5)
    tfckpt.restore("c.yaml", model)
    holds(model, saved)
    again = command_line.run(*arguments)
    assert (again.status, again.err) == (1, "tfckpt: c.yaml already exists; choose another name\n")
    ended = command_line.run("plan", "c.yaml", "--model", "script:build", "--write", "d.yaml")
    assert ended.status == 2
    assert "--write needs a checkpoint, not a config: add the lines to c.yaml" in ended.err


def test_plan_writes_nothing_where_no_policy_is_needed_or_found(saved: Any, flavour: Any) -> None:
    Path("other.py").write_text(
        f"import {flavour.__name__} as keras\n\n\ndef build():\n"
        "    layers = [keras.Input((7,)), keras.layers.Dense(9, name='x')]\n"
        "    return keras.Sequential(layers)\n"
    )
    Path("same.py").write_text(
        SCRIPT.format(keras=flavour.__name__, classes=3).replace("stem", "body")
    )
    none = command_line.run("plan", "ckpt-1", "--model", "other:build", "--write", "c.yaml")
    assert none.status == 1
    assert none.err == "c.yaml: not written: no policy was found that would restore it\n"
    fine = command_line.run("plan", "ckpt-1", "--model", "same:build", "--write", "c.yaml")
    assert fine.status == 0
    assert fine.err == "c.yaml: not written: no policy is needed\n"
    assert not Path("c.yaml").exists()


def test_plan_as_json_has_the_policy(saved: Any, flavour: Any) -> None:
    found = command_line.document("plan", "ckpt-1", "--model", "script:build", status=1)
    assert found["ok"] is False
    model = build(flavour, "stem", 5)
    tfckpt.restore("ckpt-1", model, policy=found["suggestion"])
    holds(model, saved)


ALIKE_LAYERS = """
import {keras} as keras

def build(names=("a", "b")):
    layers = [keras.layers.Dense(8, name=name) for name in names]
    return keras.Sequential([keras.Input((8,)), *layers])
"""


def test_plan_where_a_person_must_decide(flavour: Any, tmp_path: Any, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "alike", raising=False)
    Path("alike.py").write_text(ALIKE_LAYERS.format(keras=flavour.__name__))
    alike = importlib.import_module("alike")
    tfckpt.Checkpoint(model=alike.build("xy")).write("two")
    ended = command_line.run("plan", "two", "--model", "alike:build", "--write", "c.yaml")
    assert ended.status == 1
    assert "model/a, model/b: each may be one of model/x, model/y" in ended.out
    assert 'rename: [{checkpoint: "model/x/**", model: "model/a/**"}]' in ended.out
    assert not Path("c.yaml").exists()
    found = tfckpt.suggest("two", alike.build("ab"))
    assert found is not None
    assert found.policy is None
    assert {one.live: one.stored for one in found.choices} == {
        "model/a": ("model/x", "model/y"),
        "model/b": ("model/x", "model/y"),
    }
    assert found.choices[0].rename == ("model/x/**", "model/a/**")
