"""What a newcomer met who followed the README and the pages."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from mistakes.scene import compiled, digits, fit

import tfckpt
import tfckpt.callbacks
from tfckpt.cli.main import main


def test_the_cell_of_fit_is_run_again_with_the_same_callback(flavour, tries) -> None:
    model = digits(flavour)
    callback = tfckpt.callbacks.resume(model, "runs/a")
    fit(model, callback, epochs=2)
    with tries(model) as seen:
        assert fit(model, callback, epochs=2).epoch == [0, 1]
    seen.says("another `fit` of this model", "create the model in that cell")


def test_a_first_fit_is_told_nothing_of_another(flavour, tries) -> None:
    model = digits(flavour)
    with tries(model) as seen:
        fit(model, tfckpt.callbacks.resume(model, "runs/a"), epochs=2)
    seen.never_says("another `fit`")


def test_a_layer_of_another_width_in_the_same_directory(flavour, tries) -> None:
    model = digits(flavour)
    fit(model, tfckpt.callbacks.resume(model, "runs/a"))
    wider = compiled(
        flavour,
        flavour.Sequential(
            [
                flavour.Input((6,)),
                flavour.layers.Dense(9, activation="relu", name="body"),
                flavour.layers.Dense(3, name="head"),
            ]
        ),
    )
    with tries(wider) as seen, pytest.raises(tfckpt.RefusedError) as caught:
        fit(wider, tfckpt.callbacks.resume(wider, "runs/a"))
    assert seen.untouched
    last = str(caught.value).splitlines()[-1].strip()
    assert last == "tfckpt.callbacks.resume(model, 'runs/a', start_over=True)"
    assert "another directory" in str(caught.value)
    namespace = {"tfckpt": tfckpt, "model": wider}
    callback = eval(last, namespace)
    assert len(fit(wider, callback, epochs=1).epoch) == 1


@pytest.mark.parametrize(
    "directory", ["runs/model-{epoch}.keras", "runs/best.weights.h5", "runs/{epoch:02d}-{loss:.2f}"]
)
def test_the_file_of_a_model_checkpoint(flavour, directory) -> None:
    model = digits(flavour)
    with pytest.raises(tfckpt.PolicyError, match="is the name of a file") as caught:
        tfckpt.callbacks.resume(model, directory)
    assert "write the directory, e.g. 'runs'" in str(caught.value)
    assert not Path("runs").exists()


def test_the_best_by_one_call(flavour) -> None:
    model = digits(flavour)
    manager = tfckpt.CheckpointManager(tfckpt.Checkpoint(model=model), "runs/a", None)
    run = tfckpt.from_config(
        {
            "version": 1,
            "manager": {
                "directory": "runs/b",
                "keep": [{"best": 1, "monitor": "loss", "mode": "min"}, {"latest": 2}],
            },
        },
        model,
    )
    for number, loss in enumerate([3.0, 1.0, 2.0]):
        model.layers[0].bias.assign(np.full(8, number))
        run.save(metrics={"loss": loss})
        manager.save()
    for select, expected in (("best", 1), (3, 2), ("latest", 2), (None, 2)):
        other = digits(flavour)
        tfckpt.restore("runs/b", other, include=["model/**"], select=select)
        np.testing.assert_array_equal(other.layers[0].bias.numpy(), np.full(8, expected))
    plan = tfckpt.plan("runs/b", digits(flavour), include=["model/**"], select="best")
    assert "the best of 2 by loss (1)" in str(plan)
    with pytest.raises(tfckpt.PolicyError, match="`select` is for a directory"):
        tfckpt.restore("runs/b/ckpt-3", model, select="best")
    with pytest.raises(tfckpt.PolicyError, match="expected latest, best or a checkpoint number"):
        tfckpt.restore("runs/b", model, select="first")
    config = {"version": 1, "restore": {"directory": "runs/b"}}
    with pytest.raises(tfckpt.PolicyError, match="`select` was passed as well"):
        tfckpt.restore(config, model, select="best")


def test_the_newest_is_damaged(flavour) -> None:
    model = digits(flavour)
    manager = tfckpt.CheckpointManager(tfckpt.Checkpoint(model=model), "runs/a", None)
    manager.save()
    newest = manager.save()
    (data,) = Path("runs/a").glob("ckpt-2.data*")
    data.write_bytes(bytes(255 - byte for byte in data.read_bytes()))
    report = tfckpt.restore("runs/a", digits(flavour), include=["model/**"])
    (rejected,) = report.rejected
    assert newest in rejected
    assert "nothing was restored from it; copy the checkpoint again" in rejected
    assert report.path.endswith("ckpt-1")


TRAIN = """
import tensorflow as tf

class Model(tf.Module):
    def __init__(self):
        self.weight = tf.Variable([{}])

build = Model
"""


def test_a_lock_is_written_over(monkeypatch, capsys) -> None:
    monkeypatch.syspath_prepend(".")

    class Model(tf.Module):
        def __init__(self, *values: float) -> None:
            super().__init__()
            self.weight = tf.Variable(values)

    Path("lock_met.py").write_text(TRAIN.format("0.0, 0.0"), encoding="utf-8")
    config = {"version": 1, "restore": {"path": "zoo/ckpt-1", "policy": {"api": "read"}}}
    Path("t.yaml").write_text(json.dumps(config), encoding="utf-8")
    said = []
    for values in ((1.0, 2.0), (1.0, 2.0), (3.0, 4.0)):
        for old in Path("zoo").glob("*"):
            old.unlink()
        tfckpt.Checkpoint(model=Model(*values)).save("zoo/ckpt")
        command = ["tfckpt", "plan", "t.yaml", "--model", "lock_met:build", "--lock", "a.json"]
        assert main(command) == 0
        said.append(capsys.readouterr().err)
    assert "lock a.json: 2 values, written" in said[0]
    assert "replaces" not in said[0] + said[1]
    assert "lock a.json: 2 values, replaces a lock that differed:" in said[2]
    assert "crc32c" in said[2]
