"""What commands find and change, as a shell sees it; what they print is tests/golden/commands."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import platform
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from zoo.command_line import Terminal, document, run

import tfckpt
from tfckpt.cli.main import main
from tfckpt.stored.commits import commit, writer_lock
from tfckpt.stored.io.files import LOCAL, LocalFiles, LocalHandle

PROJECT = Path(__file__).resolve().parents[2]
CASES = yaml.safe_load((Path(__file__).parent / "commands.yaml").read_text(encoding="utf-8"))
DAMAGE = "dd of={} bs=1 seek=4 conv=notrunc status=none"


def names(directory: str | Path) -> list[str]:
    return sorted(file.stem for file in Path(directory).glob("*.index"))


def found_at(document: Any, path: str) -> Any:
    """What stands there in a document; `*` is each item of a list."""
    key, _, rest = path.partition("/")
    if key == "*":
        return [found_at(one, rest) if rest else one for one in document]
    value = document[int(key) if isinstance(document, list) else key.replace("%", "/")]
    return found_at(value, rest) if rest else value


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["case"])
@pytest.mark.usefixtures("place")
def test_a_command(case: dict[str, Any]) -> None:
    if first := case.get("first"):
        subprocess.run(["bash", "-ec", first], check=True, stdin=subprocess.DEVNULL)
    words, status = case["run"].split(), case.get("status", 0)
    if paths := case.get("json"):
        printed = document(*words, status=status)
        assert {path: found_at(printed, path) for path in paths} == paths
    if not paths or {"out", "err"} & case.keys():
        ended = run(*words)
        assert ended.status == status, ended
        for stream in ("out", "err"):
            text = " ".join(getattr(ended, stream).split())
            assert [said for said in case.get(stream, ()) if said not in text] == [], text
    for directory, left in case.get("left", {}).items():
        assert names(directory) == left


@pytest.mark.usefixtures("place")
def test_quarantine_moves_what_is_damaged_and_nothing_else() -> None:
    import tensorflow as tf

    for number, damage in ((2, "printf x | " + DAMAGE), (3, "truncate -s 100 {}")):
        command = damage.format(f"run/ckpt-{number}.data-00000-of-00001")
        subprocess.run(["bash", "-c", command], check=True)
    before = {file.name: file.read_bytes() for file in Path("run").iterdir()}
    found = document("verify", "run", "--quarantine", status=1)["checkpoints"]
    moved = [one["quarantine"] for one in found]
    assert moved == ["run/quarantine/ckpt-3", "run/quarantine/ckpt-2", None]
    after = {file.name: file.read_bytes() for file in Path("run").rglob("*") if file.is_file()}
    for changed in ("checkpoint", ".tfckpt.lock"):
        after.pop(changed, None)
        before.pop(changed, None)
    assert after == before
    assert names("run") == ["ckpt-1"]
    state = tf.train.get_checkpoint_state("run")
    assert [Path(path).name for path in state.all_model_checkpoint_paths] == ["ckpt-1"]
    assert (run("verify", "run").status, run("inspect", "run").status) == (0, 0)


@pytest.mark.usefixtures("place")
def test_what_a_newer_release_wrote_does_not_keep_the_others_from_being_checked() -> None:
    record = Path("bad/ckpt-1.tfckpt.json")
    body = record.read_bytes().rpartition(b',\n"sha256"')[0].replace(b'"format": 1', b'"format": 2')
    seal = hashlib.sha256(body).hexdigest()
    record.write_bytes(body + f',\n"sha256": "{seal}"\n}}\n'.encode())
    found = document("verify", "bad", "--quarantine", status=1)["checkpoints"]
    assert [one["quarantine"] is not None for one in found] == [True, False]
    assert "newer tfckpt" in found[1]["faults"][0]["message"]
    (listed,) = document("list", "bad", status=1)["checkpoints"]
    assert (listed["state"], listed["number"]) == ("committed", 1)
    assert "newer tfckpt" in listed["problem"]


@pytest.mark.usefixtures("place")
@pytest.mark.parametrize("command", ["list", "verify"])
def test_what_a_training_deletes_meanwhile_is_no_damage(
    command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    genuine = LocalFiles.open_read

    def open_read(self: LocalFiles, path: str) -> LocalHandle:
        monkeypatch.setattr(LocalFiles, "open_read", genuine)
        commit.delete("run/ckpt-1", LOCAL)
        return genuine(self, path)

    monkeypatch.setattr(LocalFiles, "open_read", open_read)
    ended = run(command, "run")
    assert (ended.status, "ckpt-1" in ended.out) == (0, False), ended
    assert names("run") == ["ckpt-2", "ckpt-3"]


@pytest.mark.usefixtures("place")
def test_prune_makes_room_on_a_full_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    import tensorflow as tf

    def full(self: LocalFiles, path: str, data: bytes) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)

    monkeypatch.setattr(LocalFiles, "write_atomic", full)
    assert run("prune", "run", "--keep", "latest=1", "--yes").status == 0
    assert names("run") == ["ckpt-3"]
    assert Path(tf.train.latest_checkpoint("run")).name == "ckpt-3"


@pytest.mark.usefixtures("place")
@pytest.mark.parametrize(
    "command", ["prune run --keep latest=1 --yes", "verify damaged --quarantine"]
)
def test_nothing_is_deleted_or_moved_while_somebody_saves(
    command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def taken(_: object) -> bool:
        raise tfckpt.InUseError("another process saves into this directory")

    monkeypatch.setattr(writer_lock.WriterLock, "acquire", taken)
    ended = run(*command.split())
    assert ended.status == 1
    assert "another process" in ended.err
    assert names("run") == ["ckpt-1", "ckpt-2", "ckpt-3"]
    assert not Path("damaged/quarantine").exists()


@pytest.mark.usefixtures("place")
def test_more_than_a_program_should_read_as_json_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tfckpt.cli.inspect.MAX_ELEMENTS", 11)
    ended = run("inspect", "values/one", "--name", "model/block_0/kernel", "--json")
    assert ended.status == 2
    assert "tfckpt export PATH FILE.npz" in ended.err


@pytest.mark.usefixtures("place")
def test_a_model_that_cannot_be_built_shows_where() -> None:
    ended = run("plan", "run", "--model", "train_golden:broken")
    assert ended.status == 2
    assert "Traceback" in ended.err
    assert "undefined_name" in ended.err


def test_a_training_script_may_have_flags_of_the_same_names(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from absl import flags

    text = "from absl import flags\nimport train_golden\n"
    text += "flags.DEFINE_string('model', 'build', 'Which one.')\n"
    text += "def build(): return getattr(train_golden, flags.FLAGS.model)()\n"
    (place / "flagged.py").write_text(text)
    monkeypatch.syspath_prepend(place)
    try:
        assert run("plan", "run", "--model", "flagged:build").status == 0
    finally:
        delattr(flags.FLAGS, "model")
        sys.modules.pop("flagged")


def test_an_interrupt_is_status_130(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("tfckpt.cli.inspect.inspect", interrupted)
    assert run("inspect", "x") == (130, "", "tfckpt: interrupted\n")


def test_a_reader_that_leaves_and_a_terminal_without_unicode(made: Path) -> None:
    """And the script that is installed starts."""
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w") as closed:
        command = [Path(sys.executable).with_name("tfckpt"), "inspect", made / "run"]
        done = subprocess.run(
            command, stdout=closed, stderr=subprocess.PIPE, text=True, check=False
        )
    assert (done.returncode, done.stderr) == (141, "")
    done = subprocess.run(
        [sys.executable, "-m", "tfckpt", "inspect", made / "odd" / "one"],
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""
    assert "model/a\\x1b[31m\\u202e" in done.stdout


# --- policies


def test_the_schema_is_the_one_that_editors_read() -> None:
    schema = PROJECT / "tfckpt" / "policy" / "schema.json"
    assert json.loads(run("policy", "schema").out) == json.loads(schema.read_text("utf-8"))


# --- doctor


@pytest.mark.usefixtures("place")
def test_doctor_says_versions_and_what_the_next_start_does() -> None:
    import keras
    import tensorflow as tf

    facts = dict(tfckpt.doctor("absent"))
    assert facts["Python"].startswith(platform.python_version())
    assert facts["tensorflow"].startswith(f"{tf.__version__} (tested: 2.16 to ")
    assert facts["keras"].startswith(f"{keras.__version__} (tested: 3.1 to ")
    assert facts["next start"] == "begins from initial values, and creates the directory"
    assert document("doctor", "run")["facts"] == (facts := dict(tfckpt.doctor("run")))
    assert facts["checkpoints"].startswith("3 committed; ")
    assert facts["next start"] == "resumes from ckpt-3, step 3,000, epoch 3"
    assert (facts["writable"], facts["lock"]) == ("yes", "free: no process saves into it")
    Path("run/ckpt-3.data-00000-of-00001").unlink()
    facts = dict(tfckpt.doctor("run"))
    assert facts["next start"] == "passes over ckpt-3; resumes from ckpt-2, step 2,000, epoch 2"
    checkpoint = tfckpt.Checkpoint(model=sys.modules["train_golden"].build())
    manager = tfckpt.CheckpointManager(checkpoint, "run", None)
    assert manager.restore_or_initialize() == "run/ckpt-2"
    manager.save()
    assert f"process {os.getpid()} on " in dict(tfckpt.doctor("run"))["lock"]


# --- what is shown while it works


@pytest.mark.usefixtures("place")
@pytest.mark.parametrize(
    ("command", "total"),
    [
        ("diff run/ckpt-1 run/ckpt-2 --values", "40 B"),
        ("verify run/ckpt-1", "971 B"),
    ],
)
def test_a_bar_says_how_much_is_done(
    command: str, total: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    with contextlib.redirect_stderr(Terminal()) as shown:
        assert main(["tfckpt", *command.split()]) == command.startswith("diff")
    frames = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.getvalue())
    assert re.search(rf"\d \w+ of {re.escape(total)}", frames), frames
    assert not re.search(r"\?|TB/s", frames)


CONFIG = "version: 1\nrestore: {directory: runs/empty, if_none: initialize}\n"
SAYS = "import sys, tensorflow as tf\ndef build():\n    print('built', file=sys.stderr)\n"
BROKEN = "import os\nos.write(2, b'F0000 no AVX\\n')\nraise ImportError('cannot load')\n"


@pytest.mark.parametrize("broken", [False, True])
def test_what_tensorflow_logs_is_shown_where_its_import_fails_alone(
    broken: bool, tmp_path: Path
) -> None:
    (tmp_path / "config.yaml").write_text(CONFIG, encoding="utf-8")
    (tmp_path / "train.py").write_text(f"{SAYS}    return tf.Module()\n", encoding="utf-8")
    if broken:
        (tmp_path / "tensorflow").mkdir()
        (tmp_path / "tensorflow" / "__init__.py").write_text(BROKEN)
    done = subprocess.run(
        [sys.executable, "-m", "tfckpt", "plan", "config.yaml", "--model", "train:build"],
        cwd=tmp_path,
        env={name: one for name, one in os.environ.items() if name != "TF_CPP_MIN_LOG_LEVEL"},
        capture_output=True,
        text=True,
        check=False,
    )
    if broken:
        assert done.returncode != 0
        assert "F0000 no AVX" in done.stderr
    else:
        assert not re.search("oneDNN|cudart", done.stderr)
        assert done.stderr.splitlines()[0] == "built"  # what the program itself says is shown
