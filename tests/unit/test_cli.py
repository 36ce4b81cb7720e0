"""The command line, as a shell sees it: what is printed where, and the exit status."""

import json
import os
import re
import subprocess
import sys

import pytest

import tfckpt
from tfckpt.cli.main import main
from tfckpt.cli.parser import parsers
from tfckpt.core.inventory import Entry, Inventory, Role
from tfckpt.planning import make_plan
from tfckpt.policy import Policy


def run(*arguments):
    return main(["tfckpt", *map(str, arguments)])


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A directory with two checkpoints as plain TensorFlow writes them."""
    import tensorflow as tf

    directory = tmp_path_factory.mktemp("runs")
    model = tf.train.Checkpoint(
        kernel=tf.Variable(tf.ones((3, 5))),
        bias=tf.Variable(tf.ones(5, tf.float64)),
        a_name_that_is_much_too_long_for_the_first_column_of_a_table=tf.Variable(1.0),
        **{"red\x1b[31m\u202e": tf.Variable(0), "café": tf.Variable(0)},
    )
    checkpoint = tf.train.Checkpoint(model=model)
    checkpoint.save(f"{directory}/ckpt")
    checkpoint.save(f"{directory}/ckpt")
    return directory


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Makes a module that can be named in --model."""

    def make(text):
        (tmp_path / "train_script.py").write_text(text)
        monkeypatch.syspath_prepend(tmp_path)
        monkeypatch.delitem(sys.modules, "train_script", raising=False)
        return "train_script:build"

    yield make
    sys.modules.pop("train_script", None)


def plan_of(monkeypatch, *stored, **policy):
    """tfckpt.plan answers with a plan for these stored names and one live value, `model/a`."""
    entries = {name: Entry(name, Role.WEIGHT, "float32", (2,), 8) for name in ("model/a", *stored)}
    live = Inventory("live", {"model/a": entries["model/a"]})
    plan = make_plan(Policy(**policy), Inventory("runs/ckpt-1", entries), live)
    calls = []

    def answer(*arguments, **objects):
        calls.append((arguments, objects))
        return plan

    monkeypatch.setitem(vars(tfckpt), "plan", answer)  # without loading TensorFlow to replace it
    return plan, calls


# --- inspect


def test_inspect_makes_escapes_in_names_harmless(runs, capsys):
    for arguments in ((), ("--json",)):
        run("inspect", runs / "ckpt-1", *arguments)
        out = capsys.readouterr().out
        assert "\x1b" not in out
        assert "\u202e" not in out
        assert "\\x1b[31m" in out or "\\u001b[31m" in out


def test_inspect_of_damage_alone_is_an_error_of_one_sentence_each(tmp_path, capsys):
    for number in (1, 2):
        (tmp_path / f"ckpt-{number}.index").write_bytes(b"\0" * 100)
    assert run("inspect", tmp_path) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "none of its 2 checkpoints can be read" in captured.err
    assert "Traceback" not in captured.err


def test_inspect_neither_needs_tensorflow_nor_minds_a_reader_that_leaves(runs):
    code = (
        "import sys; from tfckpt.cli.main import main; status = main();"
        "print(sorted({'tensorflow', 'keras', 'rich', 'pydantic', 'numpy'} & set(sys.modules)),"
        "file=sys.stderr); sys.exit(status)"
    )
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w") as closed:
        done = subprocess.run(
            [sys.executable, "-c", code, "inspect", runs / "ckpt-1"],
            stdout=closed,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert (done.returncode, done.stderr.strip()) == (141, "[]")


def test_output_survives_a_terminal_without_unicode(runs):
    done = subprocess.run(
        [sys.executable, "-c", "from tfckpt.cli.main import main; main()", "inspect", runs],
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""
    assert "model/caf\\xe9" in done.stdout


# --- plan


def test_a_plan_for_a_person_shows_every_error_and_what_to_do(module, monkeypatch, capsys):
    plan_of(monkeypatch, "model/b", exclude=("model/[x]/**",))
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert run("plan", "finetune.yaml", "--model", module("def build(): return 1")) == 1
    out = capsys.readouterr().out
    assert "model/b" in out
    assert "UNEXPECTED" in out
    assert "expect_unexpected" in out
    assert "'model/[x]/**' matches nothing" in out


def test_a_training_script_may_have_flags_of_the_same_names(module, monkeypatch):
    _, calls = plan_of(monkeypatch)
    target = module(
        "from absl import flags\n"
        "values = flags.FLAGS\n"
        "flags.DEFINE_string('model', 'resnet', 'Which one.')\n"
        "def build(): return values.model\n"
    )
    try:
        assert run("plan", "finetune.yaml", "--model", target) == 0
    finally:
        from absl import flags

        delattr(flags.FLAGS, "model")
    assert calls[0][1] == {"model": "resnet"}


def test_a_model_that_cannot_be_built_shows_where(module, capsys):
    target = module("def build(): return undefined_name\n")
    assert run("plan", "finetune.yaml", "--model", target) == 2
    error = capsys.readouterr().err
    assert "Traceback" in error
    assert "undefined_name" in error


@pytest.mark.parametrize("returned", ["None", "3", "{'model': None}"])
def test_a_callable_that_returns_no_model_is_misuse(module, tmp_path, capsys, returned):
    (tmp_path / "c.yaml").write_text("version: 1\nrestore: {path: zoo/ckpt-1}\n")
    target = module(f"def build(): return {returned}\n")
    assert run("plan", tmp_path / "c.yaml", "--model", target) == 2
    error = capsys.readouterr().err
    assert f"train_script:build returned model = {3 if returned == '3' else None}" in error
    assert "Traceback" not in error


# --- policy check


CONFIG = "version: 1\npolicies:\n  finetune:\n    include: ['model/**']\n"


def test_policy_check_names_every_fault_with_its_line(tmp_path, capsys):
    (tmp_path / "c.yaml").write_text(CONFIG + "    inclde: []\n    on_missing: maybe\n")
    assert run("policy", "check", tmp_path / "c.yaml") == 1
    error = capsys.readouterr().err
    assert "c.yaml:5:" in error
    assert "c.yaml:6:" in error
    assert run("policy", "check", tmp_path / "c.yaml", "--json") == 1
    document = json.loads(capsys.readouterr().out)
    assert [problem["line"] for problem in document["problems"]] == [5, 6]


# --- the command line itself


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("inspct", "x"),
        ("inspect",),
        ("inspect", "a", "b"),
        ("inspect", "a", "--jsn"),
        ("inspect", "a", "--values", "--keys"),
        ("policy", "suggest", "a"),
        ("plan", "c.yaml", "--model", "train:build", "--write", "d.yaml"),
        ("policy",),
        ("policy", "check"),
        ("plan", "finetune.yaml"),
        ("plan", "--model", "train:build"),
    ],
)
def test_misuse_is_status_2_and_points_to_the_help(arguments, capsys):
    assert run(*arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert re.search(r"^try: tfckpt .*--help$", captured.err, re.MULTILINE)
    assert "Traceback" not in captured.err


@pytest.mark.parametrize(
    "arguments", [("--help",), ("-h",), *([*name.split(), "--help"] for name in parsers()[1])]
)
def test_help_has_examples(arguments, capsys):
    assert run(*arguments) == 0
    out = capsys.readouterr().out
    assert "examples:" in out
    assert max(map(len, out.splitlines())) <= 80


def test_an_interrupt_is_status_130(monkeypatch, capsys):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("tfckpt.cli.inspect.inspect", interrupted)
    assert run("inspect", "x") == 130
    assert capsys.readouterr().err == "tfckpt: interrupted\n"
