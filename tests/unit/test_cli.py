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


def test_inspect_lists_values_types_and_sizes(runs, capsys):
    assert run("inspect", runs / "ckpt-1") == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["model/kernel", "weight", "float32", "(3,", "5)", "60", "B"] in lines
    assert ["model/bias", "weight", "float64", "(5)", "40", "B"] in lines


def test_inspect_fits_80_columns_and_breaks_no_name(runs, capsys):
    run("inspect", runs / "ckpt-1")
    out = capsys.readouterr().out
    table = out[out.index("name ") :]
    assert max(map(len, table.splitlines())) <= 80
    assert "model/a_name_that_is_much_too_long_for_the_first_column_of_a_table" in table


def test_inspect_makes_escapes_in_names_harmless(runs, capsys):
    for arguments in ((), ("--json",)):
        run("inspect", runs / "ckpt-1", *arguments)
        out = capsys.readouterr().out
        assert "\x1b" not in out
        assert "\u202e" not in out
        assert "\\x1b[31m" in out or "\\u001b[31m" in out


def test_inspect_for_a_person_is_as_harmless_and_no_markup(runs, capsys, monkeypatch):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert run("inspect", runs / "ckpt-1") == 0
    out = capsys.readouterr().out
    assert "\x1b[31m" not in out
    assert "\\x1b[31m" in out.replace("\n", "")


def test_inspect_as_json_agrees_with_tensorflow(runs, capsys):
    import tensorflow as tf

    assert run("inspect", runs / "ckpt-2", "--json") == 0
    document = json.loads(capsys.readouterr().out)
    expected = dict(tf.train.list_variables(str(runs / "ckpt-2")))
    expected.pop("_CHECKPOINTABLE_OBJECT_GRAPH")
    assert {value["key"]: value["shape"] for value in document["values"]} == expected
    assert document["version"] == 1
    assert document["kind"] == "tensorflow"
    assert document["totals"]["model"]["values"] == 5
    assert document["nbytes"] == 60 + 40 + 4 + 4 + 4 + 8


def test_inspect_of_a_directory_shows_the_newest_and_lists_the_rest(runs, capsys, monkeypatch):
    monkeypatch.chdir(runs.parent)
    assert run("inspect", runs.name) == 0
    out = capsys.readouterr().out
    assert f"{runs.name}/ckpt-2  foreign  shown below" in out
    assert f"{runs.name}/ckpt-1  foreign" in out
    assert f"{runs.name}/ckpt-2: written by TensorFlow" in out


def test_inspect_passes_over_what_it_cannot_read_and_says_so(runs, tmp_path, capsys):
    for file in runs.glob("ckpt-*"):
        (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / "ckpt-2.index").write_bytes(b"\0" * 100)
    assert run("inspect", tmp_path, "--json") == 1
    document = json.loads(capsys.readouterr().out)
    assert document["prefix"] == f"{tmp_path}/ckpt-1"
    newest, older = document["candidates"]
    assert newest["prefix"] == f"{tmp_path}/ckpt-2"
    assert newest["rejected"]
    assert older["rejected"] is None


def test_inspect_of_damage_alone_is_an_error_of_one_sentence_each(tmp_path, capsys):
    for number in (1, 2):
        (tmp_path / f"ckpt-{number}.index").write_bytes(b"\0" * 100)
    assert run("inspect", tmp_path) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "none of its 2 checkpoints can be read" in captured.err
    assert "Traceback" not in captured.err


def test_inspect_of_a_lost_index_alone_is_damage(tmp_path, capsys):
    (tmp_path / "ckpt-1.data-00000-of-00001").touch()
    (tmp_path / "ckpt-1.tfckpt.json").touch()
    assert run("inspect", tmp_path) == 1
    error = capsys.readouterr().err
    assert "none of its 1 checkpoints can be read" in error
    assert "index" in error


def test_inspect_of_a_missing_data_file_lists_and_complains(runs, tmp_path, capsys):
    (tmp_path / "ckpt-1.index").write_bytes((runs / "ckpt-1.index").read_bytes())
    assert run("inspect", tmp_path / "ckpt-1") == 1


def test_inspect_of_nothing_says_so(tmp_path, capsys):
    assert run("inspect", tmp_path / "ckpt-7") == 1
    assert "ckpt-7" in capsys.readouterr().err


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


def test_plan_gives_the_model_to_the_config_and_prints_the_report(module, monkeypatch, capsys):
    plan, calls = plan_of(monkeypatch)
    target = module("def build():\n    print('building')\n    return 'the model'\n")
    assert run("plan", "finetune.yaml", "--model", target) == 0
    captured = capsys.readouterr()
    assert captured.out == f"{plan}\n"
    assert captured.err == "building\n"
    assert calls == [(("finetune.yaml",), {"model": "the model"})]


def test_plan_takes_keyword_objects(module, monkeypatch):
    _, calls = plan_of(monkeypatch)
    target = module("def build():\n    return {'model': 1, 'optimizer': 2}\n")
    run("plan", f"--model={target}", "finetune.yaml")
    assert calls[0][1] == {"model": 1, "optimizer": 2}


def test_a_refused_plan_is_status_1_with_json_on_stdout_alone(module, monkeypatch, capsys):
    plan, _ = plan_of(monkeypatch, "model/b")
    target = module("def build():\n    print('building')\n    return 1\n")
    assert run("plan", "finetune.yaml", "--model", target, "--json") == 1
    assert json.loads(capsys.readouterr().out) == plan.to_json()


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


@pytest.mark.parametrize(
    ("target", "text"),
    [
        ("train", "MODULE:CALLABLE"),
        ("no_such_module:build", "No module named 'no_such_module'"),
        ("json:no_such_thing", "no_such_thing"),
    ],
)
def test_a_model_that_cannot_be_named_is_misuse(target, text, capsys):
    assert run("plan", "finetune.yaml", "--model", target) == 2
    error = capsys.readouterr().err
    assert text in error
    assert "Traceback" not in error


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


def test_policy_check_of_a_sound_config(tmp_path, capsys):
    (tmp_path / "c.yaml").write_text(CONFIG)
    assert run("policy", "check", tmp_path / "c.yaml") == 0
    assert "valid (finetune)" in capsys.readouterr().out
    assert run("policy", "check", tmp_path / "c.yaml", "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["ok"], document["policies"]) == (True, ["finetune"])


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
    ("words", "said"),
    [
        (["inspekt", "runs/digits"], "unknown command 'inspekt'; did you mean 'inspect'?"),
        (["polcy", "check", "t.yaml"], "unknown command 'polcy'; did you mean 'policy'?"),
        (
            ["policy", "chek", "t.yaml"],
            "unknown command 'policy chek'; did you mean 'policy check'?",
        ),
        (["policy"], "unknown command 'policy'; did you mean 'policy check' or 'policy schema' or"),
        (["restore", "runs/digits"], "unknown command 'restore'\n"),
    ],
)
def test_a_misspelled_command_gets_a_suggestion(words, said, capsys):
    assert run(*words) == 2
    assert said in capsys.readouterr().err


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


def test_what_other_commands_answer_to(capsys):
    for words in (["--version"], ["version"]):
        assert run(*words) == 0
        assert capsys.readouterr().out == f"tfckpt {tfckpt.__version__}\n"
    assert run("policy", "--help") == 0
    out = capsys.readouterr().out
    for name in parsers()[1]:
        assert (f"  {name.split()[-1]} " in out) == name.startswith("policy ")
    ended = subprocess.run(
        [sys.executable, "-m", "tfckpt", "--version"], check=True, capture_output=True, text=True
    )
    assert ended.stdout == f"tfckpt {tfckpt.__version__}\n"


def test_an_interrupt_is_status_130(monkeypatch, capsys):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("tfckpt.cli.inspect.inspect", interrupted)
    assert run("inspect", "x") == 130
    assert capsys.readouterr().err == "tfckpt: interrupted\n"
