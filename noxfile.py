"""What tfckpt passes with which Python, TensorFlow and Keras, and with which programs of others.

`make test-matrix`:

A session for each of `PAIRS` installs it into an environment of its own and runs `GROUPS`; if its
interpreter is not found it is skipped, and nox says so. Then one run goes through the environments
of released versions, from the oldest to the newest. The last session writes what came out of it
into docs/versions.md.

`nox -R -s 'versions(oldest)' -- facts resume` runs two groups of one pair again, and `nox -s table`
writes the page.

`make test-wheel` builds the wheel and installs it into an empty environment, first alone, then with
TensorFlow: pip finds nothing wrong, and the commands work.

`make test-clients`: a session for each of `CLIENTS` installs packages that go together, and runs
tests/clients with each; the last one writes docs/clients.md. `nox -R -s 'clients(keras)' --
keras_hub` runs one client again, and `nox -s clients_table` writes the page.
"""

from __future__ import annotations

import json
import os
from datetime import date
from itertools import zip_longest
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import nox
from nox.command import CommandFailed

nox.needs_version = ">=2024.4.15"
nox.options.default_venv_backend = "venv"
nox.options.reuse_venv = "yes"
nox.options.error_on_missing_interpreters = False
nox.options.sessions = ["versions", "upgrade", "table"]

PAIRS: dict[str, tuple[str, list[str]]] = {
    "oldest": ("3.10", ["tensorflow==2.16.2", "keras==3.1.1", "tf_keras==2.16.0"]),
    "2.18": ("3.11", ["tensorflow==2.18.1", "keras==3.6.0", "tf_keras==2.18.0"]),
    "2.20": ("3.12", ["tensorflow==2.20.*", "keras==3.11.*", "tf_keras==2.20.*"]),
    "newest": ("3.13", ["tensorflow==2.21.*", "keras", "tf_keras==2.21.*"]),
    "next": ("3.13", []),  # the newest pre-releases, if they install
}
GROUPS = {
    "private names": ["tests/conformance/test_private_names.py"],
    "callback attributes": ["tests/conformance/test_callback_attributes.py"],
    "facts": ["tests/conformance/facts"],
    "resume": ["tests/conformance/resume"],
    "distribution": ["tests/distribution"],
    "pages": ["tests/docs"],
}
RECORDS = Path("build", "matrix")
UPGRADE = RECORDS / "upgrade.json"
PAGE = Path("docs", "versions.md")
BEGIN, END = "<!-- made by `make ", "<!-- end -->"
VERSIONS = """
import json, platform, keras, tensorflow, tf_keras
packages = {each.__name__: each.__version__ for each in (tensorflow, keras, tf_keras)}
print(json.dumps({"python": platform.python_version(), **packages}))
"""
# By the Keras that they are made for: the packages, and the tests in tests/clients with the name of
# the package that a client is in.
CLIENTS: dict[str, tuple[str, list[str], dict[str, str]]] = {
    "keras": (
        "3.12",
        ["tensorflow==2.21.*", "keras-hub", "keras-tuner"],
        {"keras_hub": "keras-hub", "keras_tuner": "keras-tuner"},
    ),
    "tf_keras": (
        "3.12",
        [
            *("tensorflow==2.20.*", "tf_keras==2.20.*", "tf-models-official", "dm-sonnet"),
            *(
                "tensorflow-probability[tf]",
                "gin-config",
                "cloudpickle",
                "setuptools<81",
            ),  # TF-Agents'
        ],
        {
            "model_garden": "tf-models-official",
            "tf_agents": "tf-agents",
            "sonnet": "dm-sonnet",
        },
    ),
}
# It asks for versions of typing-extensions and pygame that nothing else takes, and needs neither.
ALONE = {"tf_keras": ["tf-agents==0.19.0", "gym==0.23.0", "gym-notices"]}
CLIENT_RECORDS = Path("build", "clients")
CLIENT_PAGE = Path("docs", "clients.md")
PACKAGES = """
import json, sys
from importlib.metadata import version
print(json.dumps({name: version(name) for name in sys.argv[1:]}))
"""
WRITTEN = "tests/golden/written/0.1/keras"
COMMANDS = """
--version
list {run}
inspect {run}/ckpt-1 --values
inspect {run}/model.weights.h5
inspect {run}/values.safetensors
diff {run}/ckpt-1 {run}/ckpt-1 --values
verify {run}
policy check {config}
policy schema
report {run} --html run.html --force
doctor
"""
PROGRAM = """
import keras
import tfckpt

def build():
    return keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])

if __name__ == "__main__":
    model, other = build(), build()
    tfckpt.CheckpointManager(tfckpt.Checkpoint(model=model), "saved", 1).save()
    tfckpt.restore("saved", other)
    assert (model.get_weights()[0] == other.get_weights()[0]).all()
"""
# Other versions warn of other things.
PLAIN = ("-p", "no:cacheprovider", "-W", "default")
QUIET = {"TF_CPP_MIN_LOG_LEVEL": "3"}
# pyenv's `python3.12` runs only where it is the chosen one; the program that it stands for, always.
PYENV = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions").glob("3.*/bin")
os.environ["PATH"] = os.pathsep.join([*map(str, sorted(PYENV)), os.environ["PATH"]])


@nox.session
@nox.parametrize("python,pair", [nox.param(p, name, id=name) for name, (p, _) in PAIRS.items()])
def versions(session: nox.Session, pair: str) -> None:
    """Run the groups, or those that are named, with one pair of TensorFlow and Keras."""
    session.install("-e", ".[test]", *PAIRS[pair][1])
    if pair == "next":
        install_next(session)
    RECORDS.mkdir(parents=True, exist_ok=True)
    file, report = RECORDS / f"{pair}.json", RECORDS / f"{pair}.xml"
    groups = session.posargs or list(GROUPS)
    record = json.loads(file.read_text()) if session.posargs and file.exists() else {"groups": {}}
    out = session.run("python", "-c", VERSIONS, silent=True, stderr=None, env=QUIET)
    record |= {"versions": json.loads(out), "date": when(session)}
    record["python"] = str(Path(session.bin, "python"))
    session.run(
        *("python", "-m", "pytest", "-n", "2", "--dist", "loadfile", "--no-loadscope-reorder"),
        *(f"--junitxml={report}", *PLAIN),
        *(path for group in groups for path in GROUPS[group]),
        env=QUIET,
        success_codes=[0, 1],  # a test that failed is in the report
    )
    record["groups"] |= {group: counts(report, GROUPS[group]) for group in groups}
    file.write_text(json.dumps(record, indent=1), encoding="utf-8")
    if failed := [group for group in groups if record["groups"][group]["failed"]]:
        session.error(f"failed: {', '.join(failed)}")


def install_next(session: nox.Session) -> None:
    """TensorFlow's newest pre-release, and last night's Keras in place of the released one.

    The released tf_keras stays, although it asks for an older TensorFlow: there is no other.
    """
    try:
        session.install("--upgrade", "tensorflow>=2.16.dev0")
        session.run_install("python", "-m", "pip", "uninstall", "-q", "-y", "keras")
        # forced: both put their files into one folder, and the other one's are gone now
        session.install("--pre", "--force-reinstall", "--no-deps", "keras-nightly")
    except CommandFailed:
        session.skip("no pre-release of TensorFlow and Keras installs here")


@nox.session(python="3.11", default=False)
def s3(session: nox.Session) -> None:
    """Save into a real S3 server by TensorFlow's own file system, with the newest that has one."""
    pinned = ["tensorflow==2.16.2", "keras==3.1.1", "tf_keras==2.16.0", "tensorflow-io==0.37.1"]
    session.install("-e", ".[test]", *pinned)
    session.run("python", "-m", "pytest", *PLAIN, "-m", "", "tests/faults/test_s3.py", env=QUIET)


@nox.session(default=False, reuse_venv=False)
def wheel(session: nox.Session) -> None:
    """What a wheel installs is enough for the commands, and with TensorFlow for all of it."""
    built = Path(session.create_tmp(), "wheel").resolve()
    session.run("python", "-m", "pip", "wheel", "-q", "--no-deps", f"--wheel-dir={built}", ".")
    (file,) = built.glob("*.whl")
    run, config = (Path(name).resolve() for name in (WRITTEN, "configs/resume.yaml"))
    session.chdir(session.create_tmp())  # not where the package's own files are
    for extra in ("", "[tensorflow]"):
        session.install(f"{file}{extra}")
        session.run("python", "-m", "pip", "check")
        session.run("python", "-c", "import tensorflow", success_codes=[0 if extra else 1])
        for command in COMMANDS.format(run=run, config=config).strip().splitlines():
            session.run("tfckpt", *command.split(), silent=True, env={**QUIET, "RUN_DIR": "."})
    Path("train.py").write_text(PROGRAM, encoding="utf-8")
    session.run("python", "train.py", env=QUIET)
    session.run("tfckpt", "plan", "saved", "--model", "train:build", silent=True, env=QUIET)


@nox.session(python=False)
def upgrade(session: nox.Session) -> None:
    """Resume one run in each environment, from the oldest to the newest.

    Not in a pre-release's, which may round differently: TensorFlow 2.22.0rc0 does.
    """
    of_each = {pair: record for pair, record in records().items() if pair != "next"}
    found = [record["python"] for record in of_each.values()]
    if len(found) < 2:
        session.skip("one environment alone: nothing to upgrade")
    each = [record["versions"] for record in of_each.values()]
    names = [f"{one['tensorflow']}, {one['keras']}" for one in each]
    UPGRADE.write_text(json.dumps({"with TensorFlow, Keras": names}), encoding="utf-8")
    session.run(
        *(found[-1], "-m", "pytest", *PLAIN, "-m", "", "tests/versions"),
        env={
            **QUIET,
            "TFCKPT_INTERPRETERS": os.pathsep.join(found),
            "TFCKPT_UPGRADES": str(UPGRADE),
        },
        external=True,
    )


@nox.session(python=False)
def table(session: nox.Session) -> None:
    """Write the tables of docs/versions.md."""
    found = records()
    write(PAGE, [*rows(found), "", *skips(found), "", *upgrades()])
    session.log(f"{PAGE} says it of {', '.join(found) or 'none'}")


def write(page: Path, made: list[str]) -> None:
    """Put the lines into the part of a page that a command makes."""
    before, rest = page.read_text(encoding="utf-8").split(BEGIN)
    command, _, rest = rest.partition("\n")
    text = "\n".join([f"{before}{BEGIN}{command}", "", *made, "", END])
    page.write_text(text + rest.partition(END)[2], encoding="utf-8")


@nox.session
@nox.parametrize("python,of", [nox.param(p, name, id=name) for name, (p, *_) in CLIENTS.items()])
def clients(session: nox.Session, of: str) -> None:
    """Run each client that is made for one Keras, or those that are named."""
    _, packages, tests = CLIENTS[of]
    try:
        session.install("-e", ".[test]", *packages)
        if of in ALONE:
            session.install("--no-deps", *ALONE[of])
    except CommandFailed:
        session.skip(f"the clients for {of} do not install here")
    CLIENT_RECORDS.mkdir(parents=True, exist_ok=True)
    named = ("tensorflow", "keras", "tf_keras", *tests.values())
    out = session.run("python", "-c", PACKAGES, *named, silent=True, stderr=None)
    versions_of = json.loads(out)
    failed = []
    for client in session.posargs or tests:
        report = CLIENT_RECORDS / f"{client}.xml"
        session.run(
            *("python", "-m", "pytest", "-m", "", f"--junitxml={report}", *PLAIN),
            f"tests/clients/test_{client}.py",
            env={**QUIET, "TFCKPT_CLIENTS": of},
            success_codes=[0, 1, 5],  # a test that failed is in the report; 5: all were skipped
        )
        record = {
            "package": f"{tests[client]} {versions_of[tests[client]]}",
            "with": f"{of} {versions_of[of]}, TensorFlow {versions_of['tensorflow']}",
            "date": when(session),
            "outcomes": outcomes(report),
        }
        record_file(client).write_text(json.dumps(record, indent=1), encoding="utf-8")
        failed += [client] if any("failed" in each for each in record["outcomes"].values()) else []
    if failed:
        session.error(f"failed: {', '.join(failed)}")


def record_file(client: str) -> Path:
    return CLIENT_RECORDS / f"{client}.json"


def outcomes(report: Path) -> dict[str, str]:
    """What came out of each test: what it says of itself, or `unchanged`."""
    found: dict[str, set[str]] = {}
    for case in ElementTree.parse(report).iter("testcase"):  # noqa: S314 - written by pytest
        name = case.get("name", "").partition("[")[0].removeprefix("test_").replace("_", " ")
        skip = case.find("skipped")
        if case.find("failure") is not None or case.find("error") is not None:
            outcome = "**failed**"
        elif skip is not None:
            outcome = f"skipped: {skip.get('message')}"
        else:
            said = case.find("properties/property[@name='outcome']")
            outcome = "unchanged" if said is None else said.get("value", "")
        found.setdefault(name or "all", set()).add(outcome)
    return {name: "; ".join(sorted(each, reverse=True)) for name, each in found.items()}


@nox.session(python=False)
def clients_table(session: nox.Session) -> None:
    """Write the table of docs/clients.md: what needs nothing is counted, all else is said."""
    lines = [line(["with", "unchanged", "else"]), line(["---"] * 3)]
    for client in (client for *_, tests in CLIENTS.values() for client in tests):
        if not record_file(client).exists():
            lines.append(line([client, *["not run"] * 2]))
            continue
        record = json.loads(record_file(client).read_text(encoding="utf-8"))
        said = record["outcomes"].items()
        others = [f"{what} → {outcome}" for what, outcome in said if outcome != "unchanged"]
        lines.append(
            line(
                [
                    f"{client}: {record['package']}, {record['with']}, {record['date']}",
                    f"{len(said) - len(others)} of {len(said)}",
                    "<br>".join(others),
                ]
            )
        )
    write(CLIENT_PAGE, lines)
    session.log(f"{CLIENT_PAGE} is written")


def records() -> dict[str, dict[str, Any]]:
    files = {pair: RECORDS / f"{pair}.json" for pair in PAIRS}
    return {pair: json.loads(file.read_text()) for pair, file in files.items() if file.exists()}


def counts(report: Path, paths: list[str]) -> dict[str, Any]:
    """How many tests of a group passed, failed and were skipped, these with their reasons."""
    prefixes = tuple(path.removesuffix(".py").replace("/", ".") for path in paths)
    passed = failed = 0
    skipped: list[str] = []
    for case in ElementTree.parse(report).iter("testcase"):  # noqa: S314 - written by pytest
        if not case.get("classname", "").startswith(prefixes):
            continue
        failed += any(case.find(kind) is not None for kind in ("failure", "error"))
        skip = case.find("skipped")
        skipped += [] if skip is None else [skip.get("message", "")]
        passed += len(case.findall("*[@message]")) == 0
    return {"passed": passed, "failed": failed, "skipped": sorted(skipped)}


def when(session: nox.Session) -> str:
    """The day, and the commit that was tested."""
    git = ("git", "rev-parse", "--short=8", "HEAD")
    commit = str(session.run(*git, external=True, silent=True)).strip()
    return f"{date.today().isoformat()}, {commit}"


def rows(found: dict[str, dict[str, Any]]) -> list[str]:
    """A row for each pair, a column for each group."""
    head = ["Python", "TensorFlow", "Keras", "tf_keras", *GROUPS, "on"]
    lines = [line(head), line(["---"] * len(head))]
    for pair, (python, _) in PAIRS.items():
        if pair not in found:
            lines.append(line([python, pair, *["not run"] * (len(head) - 2)]))
            continue
        record = found[pair]
        cells = [cell(record["groups"].get(group)) for group in GROUPS]
        lines.append(line([*record["versions"].values(), *cells, record["date"]]))
    return lines


def cell(group: dict[str, Any] | None) -> str:
    if group is None:
        return "not run"
    failed = f"**{group['failed']} failed**, " if group["failed"] else ""
    skipped = f", {len(group['skipped'])} skipped" if group["skipped"] else ""
    return f"{failed}{group['passed']} passed{skipped}"


def skips(found: dict[str, dict[str, Any]]) -> list[str]:
    """Why tests were skipped, and with which TensorFlow."""
    reasons: dict[str, list[str]] = {}
    for record in found.values():
        skipped = (reason for group in record["groups"].values() for reason in group["skipped"])
        for reason in dict.fromkeys(skipped):
            reasons.setdefault(reason, []).append(record["versions"]["tensorflow"])
    return [f"- Skipped with {', '.join(where)}: {why}." for why, where in sorted(reasons.items())]


def upgrades() -> list[str]:
    """What happened when a run was resumed with the next versions."""
    if not UPGRADE.exists():
        return []
    steps = json.loads(UPGRADE.read_text())
    rows_of = zip_longest(*steps.values(), fillvalue="not run")
    return [line(list(steps)), line(["---"] * len(steps)), *map(line, rows_of)]


def line(cells: list[str] | tuple[str, ...]) -> str:
    return f"| {' | '.join(cells)} |"
