"""Configs by flags of absl, of argparse, and of OmegaConf, which Hydra passes to a program."""

from __future__ import annotations

import argparse
from typing import Any

import pytest
import tensorflow as tf
from absl import flags

import tfckpt

TEXT = """\
version: 1
manager:
  directory: runs/a
  keep: [{latest: 3}]
restore: {path: zoo/x, policy: body}
policies: {body: {include: ["model/**"]}}
"""


@pytest.fixture
def parse(tmp_path, monkeypatch) -> Any:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "good.yaml").write_text(TEXT)
    (tmp_path / "bad.yaml").write_text(TEXT.replace("directory", "directry"))

    def parsed(*arguments: str, default: Any = "good.yaml") -> Any:
        known = flags.FlagValues()
        holder = tfckpt.flags.DEFINE_config("checkpoint", default, flag_values=known)
        known(["train.py", *arguments])
        assert holder.value is known.checkpoint
        return known

    return parsed


CHANGED = [
    ((), "runs/a", 3, "zoo/x"),
    (("manager.keep.0.latest=2",), "runs/a", 2, "zoo/x"),
    (("restore.path=zoo/y",), "runs/a", 3, "zoo/y"),
    (("manager.keep[0].latest=1", "manager.directory='${HOME}/b'"), "/home/b", 1, "zoo/x"),
    (("manager.keep=[{latest: 7}]", "restore={path: z}"), "runs/a", 7, "z"),
    (("restore.path=a=b", "restore.path=c"), "runs/a", 3, "c"),
]


@pytest.mark.parametrize(("changes", "directory", "latest", "path"), CHANGED)
def test_a_flag_is_a_config_with_changes(parse, monkeypatch, changes, directory, latest, path):
    monkeypatch.setenv("HOME", "/home")
    config = parse(*(f"--checkpoint_set={each}" for each in changes)).checkpoint
    assert (config.manager.directory, config.manager.keep[0].latest) == (directory, latest)
    assert config.restore.path == path


REFUSED = {
    "--checkpoint=bad.yaml": r"--checkpoint=bad\.yaml: .*bad\.yaml:3:3: .*directry.*`directory`",
    "--checkpoint=absent.yaml": r"--checkpoint=absent\.yaml: .*absent\.yaml does not exist",
    "--checkpoint_set=restore.pth=y": r"--checkpoint_set=restore\.pth=y: .*unknown key\n.*`path`",
    "--checkpoint_set=restore={pth: y, polcy: z}": r"restore\.pth: unknown.*restore\.polcy: unk",
    "--checkpoint_set=restore": "expected KEY=VALUE, found 'restore'",
    "--checkpoint_set=manager.keep.latest=2": "`latest` is a key, but it stands in a list",
    "--checkpoint_set=manager.keep[1].latest=2": "there is no such item in the list",
    "--checkpoint_set=manager.keep[0].latest=x": r"keep\[0\]\.latest: expected a whole number",
    "--checkpoint_set=manager.durable=no": "is a boolean for some YAML parsers and text for others",
    "--checkpoint_set=manager.keep=[{": r"--checkpoint_set=manager\.keep=\[\{: ",
    "--checkpoint_set=restore.directory=z": "a source has both `path` and `directory`",
    "--checkpoint_set=restore.policy=bdy": "did you mean `body`",
}


@pytest.mark.parametrize("argument", REFUSED)
def test_what_is_wrong_names_the_flag_or_the_line(parse, argument: str) -> None:
    with pytest.raises(flags.IllegalFlagValueError, match=rf"(?s){REFUSED[argument]}"):
        parse(argument)


def test_a_flag_is_what_absl_expects_of_one(parse) -> None:
    assert parse(default=None).checkpoint is None
    mapping = {"version": 1, "manager": {"directory": "runs/a"}}
    known = parse("--checkpoint_set=manager.max_to_keep=2", default=mapping)
    assert known.checkpoint.manager.max_to_keep == 2
    written = parse("--checkpoint_set=restore.path=y").flags_into_string()
    assert "--checkpoint=good.yaml\n" in written
    assert "--checkpoint_set=restore.path=y\n" in written
    assert "KEY=VALUE of --checkpoint" in known.get_help()


def test_argparse_and_omegaconf_need_no_flag_of_their_own(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "good.yaml").write_text(TEXT)
    parser = argparse.ArgumentParser()
    parser.add_argument("--checkpoint")
    step = tf.Variable(0)
    known = parser.parse_args(["--checkpoint", "good.yaml"])
    assert tfckpt.from_config(known.checkpoint, step=step).config.restore.path == "zoo/x"
    omegaconf = pytest.importorskip("omegaconf")
    text = "runs: runs/omega\ncheckpoint:\n  version: 1\n  manager:\n    directory: ${runs}/a\n"
    config = omegaconf.OmegaConf.create(text + "    keep: [{latest: 2}]\n")
    run = tfckpt.from_config(config.checkpoint, step=step)
    assert (run.config.manager.directory, run.config.manager.keep[0].latest) == ("runs/omega/a", 2)
    config.checkpoint.manager.keep[0].latest = "x"
    with pytest.raises(tfckpt.PolicyError, match=r"keep\[0\]\.latest: expected a whole number"):
        tfckpt.from_config(config.checkpoint, step=step)
