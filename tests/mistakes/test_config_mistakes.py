"""A config that is not what the language knows: one error, with its line and what to write."""

from __future__ import annotations

import pytest
from mistakes.scene import written

import tfckpt

MISTAKES = {
    "06 a key that is misspelt": (
        "version: 1\nrestore:\n  directory: runs/digits\n  polcy: strict\n",
        [r"t\.yaml:4:3", "unknown key", "`policy`"],
    ),
    "07 a tab": ("version: 1\nrestore:\n\tdirectory: runs/digits\n", [r"t\.yaml:3:1", "spaces"]),
    "08 no version": ("restore: {directory: runs/digits}\n", [r"t\.yaml:1:1", "version: 1"]),
    "09 a variable that is not set": (
        "version: 1\nrestore: {directory: '${NO_SUCH_DIR}'}\n",
        ["NO_SUCH_DIR is not set", r"\$\{NO_SUCH_DIR:-"],
    ),
    "13 text for a list": (
        "version: 1\nrestore: {directory: runs/digits, policy: {include: model/**}}\n",
        [r"t\.yaml:2", "list", r"\['model/\*\*'\]"],
    ),
    "21 a policy that is not there": (
        "version: 1\nrestore: {directory: runs/digits, policy: resme}\npolicies: {resume: {}}\n",
        ["`resme`", "`resume`"],
    ),
    "22 wrong indentation": (
        "version: 1\nrestore:\n  directory: runs/digits\n   policy: strict\n",
        [r"t\.yaml:4", "indent"],
    ),
    "23 yes": (
        "version: 1\nrestore:\n  directory: runs/digits\n  policy: {expect_partial: yes}\n",
        [r"t\.yaml:4", "write true"],
    ),
    "27 every_epoch": (
        "version: 1\nmanager: {directory: runs/digits, save: {every_epoch: 1}}\n",
        ["`every_epochs`"],
    ),
    "27 a mapping for a list": (
        "version: 1\nmanager: {directory: runs/digits, keep: {latest: 3}}\n",
        [r"manager\.keep", "expected a list", r"\[\{'?latest'?: 3\}\]"],
    ),
    "28 best without mode": (
        "version: 1\nmanager: {directory: runs/digits, keep: [{best: 1, monitor: val_loss}]}\n",
        ["needs `mode`", "monitor: val_loss, mode: min"],
    ),
    "29 ignore for a mismatch": (
        "version: 1\nrestore: {directory: d, policy: {on_shape_mismatch: ignore}}\n",
        ["on_shape_mismatch", "'error' or 'skip'"],
    ),
    "30 an empty file": ("", [r"t\.yaml", "empty", "version: 1"]),
    "31 nothing to restore from": (
        "version: 1\nmanager: {directory: runs/digits}\n",
        ["add `restore: {directory: "],
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_06_31_a_config(run3, model, refused, mistake) -> None:
    text, words = MISTAKES[mistake]
    with refused(model, error=tfckpt.TfckptError) as seen:
        tfckpt.restore(written(text), model=model)
    seen.says(*words)


def test_10_a_config_that_does_not_exist(place, model, refused) -> None:
    with refused(model, error=tfckpt.PolicyError) as seen:
        tfckpt.restore("configs/nope.yaml", model=model)
    seen.says("configs/nope.yaml", "No such file|does not exist", str(place))
