"""A restore, a call, a config or a command that is not meant so: what it is, and what to write.

Where what is done is data, it stands in ``mistakes.yaml``.
"""

from __future__ import annotations

import builtins
import re
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import yaml
from mistakes.scene import Case, Scene, X, Y, cases, digits, each, fit, saved, values, written
from safetensors.numpy import save_file
from zoo import command_line

import tfckpt
import tfckpt.callbacks

TABLES = yaml.safe_load((Path(__file__).parent / "mistakes.yaml").read_text(encoding="utf-8"))
ABSENT, WRONG = tfckpt.CheckpointNotFoundError, tfckpt.PolicyError
POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n"
CONFIG = {"version": 1, "restore": {"directory": "runs/digits"}}
SAVES = {"version": 1, "manager": {"directory": "runs/a"}}
UNUSED = """
version: 1
restore: {path: runs/digits/ckpt-3}
policies: {tune: {include: ["model/body/**"]}}
"""
LETTER_OFF = """
version: 1
manager: {directory: runs/digits, save: {every_epochs: 1}}
restore: {directory: runs/digit, if_none: initialize}
"""


# What is done before a restore, by the name that it has in `mistakes.yaml`.


def pytorch() -> None:
    with zipfile.ZipFile("model.pt", "w") as file:  # as torch.save writes it
        file.writestr("archive/data.pkl", b"\x80\x02.")
        file.writestr("archive/version", "3")


def downloaded() -> None:
    Path("hub").mkdir()
    save_file({"model.head.bias": np.zeros(3, np.float32)}, "hub/model.safetensors")
    written("{}", "hub/config.json")


def changed(pattern: str, change: Any) -> Any:
    return lambda: [change(path) for path in list(Path("runs/digits").glob(pattern))]


def remove(pattern: str) -> Any:
    return changed(pattern, Path.unlink)


def damage(*numbers: int) -> Any:
    def flip(data: Path) -> None:
        data.write_bytes(bytes(byte ^ 0xFF for byte in data.read_bytes()))

    return changed(f"ckpt-[{''.join(map(str, numbers))}].data-*", flip)


FIRST: dict[str, Any] = {
    "": lambda: None,
    "an empty directory": lambda: Path("kept").mkdir(),
    "weights of Keras": lambda: written("", "kept/best.weights.h5"),
    "a download": downloaded,
    "a config": lambda: written("version: 1\n", "configs/a1.yaml"),
    "of PyTorch": pytorch,
    "a pointer of Git LFS": changed("ckpt-3.data*", lambda path: path.write_text(POINTER)),
    "no data": remove("ckpt-3.data*"),
    "no index": remove("*.index"),
    "no checkpoint": remove("ckpt-*"),
    "damage": damage(3),
    "all damaged": damage(1, 2, 3),
    "a file": lambda: written("", "file"),
    "unused": lambda: written(UNUSED, "unused.yaml"),
}


def split(what: str) -> tuple[str, str]:
    first, _, then = what.rpartition(" <- ")
    return first, then


def restored(what: str) -> Any:
    first, source = split(what)
    new = {"head": "new", "classes": 5} if first == "unused" else {}

    def do(scene: Scene) -> Any:
        assert scene.run
        FIRST[first]()
        given = written(f"version: 1\nrestore: {{{source}}}\n") if ": " in source else source
        return tfckpt.restore(None if given == "none" else given, model=scene.model(**new))

    return do


NAMES = {"tfckpt": tfckpt, "tf": tf, "CONFIG": CONFIG, "SAVES": SAVES, "X": X, "Y": Y}
NAMES |= {"digits": digits, "fit": fit, "resume": tfckpt.callbacks.resume}


def typed(what: str) -> Any:
    first, line = split(what)

    def do(scene: Scene) -> None:
        assert scene.run
        FIRST[first]()
        eval(line, {**NAMES, "model": scene.model(), "keras": scene.keras})

    return do


def policy(text: str, **model: Any) -> Any:
    config = f"version: 1\nrestore: {{directory: runs/digits, policy: {{{text}}}}}\n"
    return lambda s: tfckpt.restore(written(config), model=s.run and s.model(**model))


def keyword(**given: Any) -> Any:
    def do(scene: Scene) -> Any:
        tfckpt.Checkpoint(value=tf.Variable(2.0)).save("runs/a/ckpt")
        return tfckpt.restore("runs/a", value=scene.watch(tf.Variable(1.0)), **given)

    return do


def resumes(**given: Any) -> Any:
    return lambda s: tfckpt.callbacks.resume(s.model(), "new", **given)


def of_config(text: str) -> Any:
    return lambda s: tfckpt.restore(written(text), model=s.run and s.model())


def unbuilt(keras: Any) -> Any:
    class Net(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.head = keras.layers.Dense(3)

        def call(self, x: Any) -> Any:
            return self.head(x)

    return Net()


def gan(*, exchanged: bool) -> Any:
    """The models of a GAN are exchanged, or one of them is forgotten."""

    def do(scene: Scene) -> Any:
        config = {"version": 1, "manager": {"directory": "a"}, "restore": {"directory": "a"}}
        kinds = {"body": "up", "head": "image"}, {"body": "down", "head": "real"}
        one, other = (scene.model(**kind) for kind in kinds)
        tfckpt.from_config(config, generator=one, discriminator=other).save()
        one, other = (digits(scene.keras, **kind) for kind in kinds)
        scene.watch(one, other)
        swapped = {"generator": other, "discriminator": one}
        tfckpt.from_config(config, **(swapped if exchanged else {"generator": one})).restore()

    return do


def of_errors(table: str, do: Any, **more: Any) -> dict[str, Case]:
    """The cases of a table by error; those below null are said."""
    found = {}
    for name, group in TABLES[table].items():
        error = None if name is None else getattr(tfckpt, name, None) or getattr(builtins, name)
        found |= {what: Case(do(what), says, error, **more) for what, says in group.items()}
    return found


CASES: dict[str, Case] = {
    **of_errors("sources", restored, last=30),
    **of_errors("typed", typed, never="open an issue"),
    **{
        text: Case(of_config(f"version: 1\n{text}\n"), says, tfckpt.TfckptError)
        for text, says in TABLES["configs"].items()
    },
    "an empty config": Case(of_config(""), "t.yaml & empty & version: 1", WRONG),
    "no version": Case(of_config("restore: {path: a}\n"), "t.yaml:1:1 & version: 1", WRONG),
    **{f"{given}": Case(keyword(**given), says, WRONG) for given, says in TABLES["keywords"]},
    **{
        f"resume: {given}": Case(
            resumes(**given), f"^PolicyError: tfckpt.callbacks.resume: {says}", WRONG, "manager:"
        )
        for given, says in TABLES["resume"]
    },
    **{
        word: Case(
            resumes(**{word: True}), rf"^TypeError: resume\(\) has no .*'{word}'.*{says}", TypeError
        )
        for word, says in TABLES["words"].items()
    },
    # the checkpoint is of another model
    **cases(
        tfckpt.RefusedError,
        {
            "another model": (
                policy("expect_partial: true", body="stem", head="logits", units=3, classes=7),
                "no value would be restored",
            ),
            "not compiled": (
                policy("on_unexpected: error", optimizer=None),
                r"optimizer & compile & include: \[.?model/\*\*.?\]",
            ),
            "another optimizer": (
                policy("", optimizer="sgd"),
                "'sgd'|SGD & 'adam'|Adam & optimizer: reset",
            ),
            "a layer renamed": (
                policy("include: ['model/**']", body="stem"),
                r'rename: \[\{checkpoint: "model/body/\*\*", model: "model/stem/\*\*"\}\]',
            ),
            "models exchanged": (gan(exchanged=True), "generator/ & discriminator/ & rename"),
            "a model forgotten": (
                gan(exchanged=False),
                "no object was passed as 'discriminator' & pass it as discriminator=…"
                r' & exclude_checkpoint: \["discriminator/\*\*"\]',
            ),
        },
        last=24,
        # One bias that has by chance as many elements as another says nothing of the layers.
        never="rename: .*model/head/.*model/stem/",
    ),
    "never called": Case(
        lambda s: s.run and tfckpt.restore("runs/digits", unbuilt(s.keras), include=["model/**"]),
        r"call the model once on a batch & model\(",
        tfckpt.NotBuiltError,
        both=True,
    ),
    "saved before it is built": Case(
        lambda s: tfckpt.Checkpoint(model=unbuilt(s.keras)).save("runs/a/ckpt"),
        "model & no variables & call (it|the model) once|build",
        both=True,
    ),
    "not compiled, which is said": Case(
        policy("", optimizer=None),
        "only in the checkpoint, since the model has no such optimizer",
        both=True,
    ),
}


@each(CASES)
def test_it_is_refused_or_said(name, flavor, scenes) -> None:
    CASES[name].check(scenes(flavor))
    assert not Path("new").exists()


@pytest.mark.parametrize("command", [*TABLES["failing"], *TABLES["telling"]])
def test_a_command(command, scenes) -> None:
    scene, fails = scenes(), command in TABLES["failing"]
    written(LETTER_OFF)
    written(UNUSED, "unused.yaml")
    written("version: 1\nmanager: {directory: runs/a}\n", "no_save.yaml")
    written("def build(classes): ...\n", "train_.py")
    sys.modules.pop("train_", None)
    assert scene.run
    ended = command_line.run(*command.split())
    assert not fails or ended.status in (1, 2)
    says = TABLES["failing" if fails else "telling"][command]
    Case(lambda s: ended.out + ended.err, says, never="--yes does it").check(scene)
    if "nope" in command:
        command_line.run(*command.split(), "--yes")
        assert saved("runs/digits") == ["ckpt-1", "ckpt-2", "ckpt-3"]


# What works although it looks like a mistake


def test_a_model_without_its_keyword_is_restored(scenes) -> None:
    scene = scenes()
    expected = digits(scene.keras, optimizer=None)
    tf.train.Checkpoint(model=expected).restore(f"{scene.run}/ckpt-3").expect_partial()
    for source in (CONFIG, scene.run, Path(scene.run, "ckpt-3"), f"{scene.run}/ckpt-3"):
        report = tfckpt.restore(source, model := scene.model())
        np.testing.assert_equal(values(model)[:4], values(expected))
        assert (report.path, report.epoch) == ("runs/digits/ckpt-3", 3)
        assert "LOADED" in str(report)
    tfckpt.from_config(CONFIG, model := scene.model()).restore()
    np.testing.assert_equal(values(model)[:4], values(expected))
    assert tfckpt.inventory(model) == tfckpt.inventory(model=model)


def test_other_files_are_sources_and_directories_have_a_newest_one(scenes) -> None:
    scene = scenes()
    for name in ("a.yaml", "a.conf", "a"):
        written("version: 1\nrestore: {directory: runs/digits}\n", name)
        assert tfckpt.restore(name, scene.run and scene.model()).path == "runs/digits/ckpt-3"
    trained = scene.model()
    tf.train.Checkpoint(model=trained).save("other/model")
    assert tfckpt.restore("other", scene.model()).path == "other/model-1"
    tf.train.Checkpoint(model=trained).save("other/best")
    with pytest.raises(ABSENT, match=r"(?s)'best', 'model'.*other/model-1"):
        tfckpt.restore("other", scene.model())
    trained.save_weights("best.weights.h5")
    report = tfckpt.restore("best.weights.h5", scene.model(), include=["model/**"])
    assert report.path == "best.weights.h5"
    damage(3)()
    report = tfckpt.restore(scene.run, scene.model())
    assert report.path.endswith("ckpt-2")
    (rejected,) = report.rejected
    assert "ckpt-3" in rejected
    assert "nothing was restored from it; copy the checkpoint again" in rejected


WAYS: dict[str, Any] = {
    "restore": tfckpt.restore,
    "Run.restore": lambda run, model: tfckpt.from_config(CONFIG, model).restore(),
    "plan": lambda run, model: remove("ckpt-3.data*")() and tfckpt.plan(run, model),
    "manager": lambda run, model: tfckpt.CheckpointManager(
        tfckpt.Checkpoint(model=model, optimizer=model.optimizer), run, 3
    ).restore_or_initialize(),
    **{
        f"resume(verbose={verbose})": lambda run, model, verbose=verbose: fit(
            model, tfckpt.callbacks.resume(model, run, verbose=verbose)
        )
        for verbose in (0, 1)
    },
}


@pytest.mark.parametrize("way", WAYS)
def test_a_damaged_checkpoint_that_is_passed_over_is_logged_once(way, scenes, caplog) -> None:
    scene = scenes()
    run, model = scene.run, scene.model()
    damage(3)()
    with scene.looking():
        WAYS[way](run, model)
    (line,) = [text for text in map(str, caplog.messages) if "passed over" in text]
    assert re.search(r"(?s)runs/digits/ckpt-3.*(checksum|missing).*\n  using \S*/ckpt-2 in ", line)
    assert scene.text.count("passed over") == 1


def test_the_callbacks_are_there_after_nothing_but_import_tfckpt(monkeypatch) -> None:
    monkeypatch.delitem(sys.modules, "tfckpt.callbacks")
    monkeypatch.delattr(tfckpt, "callbacks")
    assert tfckpt.callbacks.resume.__name__ == "resume"


def test_an_object_by_a_keyword_that_is_a_key_of_policies(tmp_path) -> None:
    path = tfckpt.Checkpoint(include=tf.Variable(2.0)).save(tmp_path / "ckpt")
    tfckpt.restore(path, include=(value := tf.Variable(1.0)))
    assert float(value) == 2


def test_keys_of_a_policy_are_one_where_a_call_restores(scenes) -> None:
    scene, keys = scenes(), {"include": ["model/**"], "exclude": ["model/head/**"]}
    assert "EXCLUDED" in str(tfckpt.plan(scene.run, scene.model(), **keys))
    tfckpt.restore(scene.run, expected := scene.model(), policy=keys)
    tfckpt.restore(scene.run, by_restore := scene.model(), **keys)
    by_resume = scene.model()
    head = by_resume.layers[1].get_weights()
    callback = tfckpt.callbacks.resume(by_resume, scene.run, exclude=["model/head/**"])
    fit(by_resume, callback, epochs=3)  # all of which are done
    np.testing.assert_equal(by_restore.get_weights(), expected.get_weights())
    np.testing.assert_equal(by_resume.get_weights(), expected.get_weights())
    np.testing.assert_equal(by_resume.layers[1].get_weights(), head)


@pytest.mark.parametrize("kind", [dict, tfckpt.Policy.model_validate], ids=["mapping", "Policy"])
def test_a_policy_is_a_mapping_or_a_policy(kind, scenes) -> None:
    policy = kind({"training_state": ["epoch", "seeds", "callbacks"]})
    assert tfckpt.callbacks.resume(scenes().model(), "new", policy=policy) is not None
