"""What tfckpt passes with which Python, TensorFlow and Keras: `make test-matrix`.

A session for each of `PAIRS` installs it into an environment of its own and runs `GROUPS`; if its
interpreter is not found it is skipped, and nox says so. Then one run goes through the environments
of released versions, from the oldest to the newest. The last session writes what came out of it
into docs/versions.md.

`nox -R -s 'versions(oldest)' -- facts resume` runs two groups of one pair again, and `nox -s table`
writes the page.
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
BEGIN, END = "<!-- made by `make test-matrix` -->\n", "<!-- end -->"
VERSIONS = """
import json, platform, keras, tensorflow, tf_keras
packages = {each.__name__: each.__version__ for each in (tensorflow, keras, tf_keras)}
print(json.dumps({"python": platform.python_version(), **packages}))
"""
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
    record |= {"versions": json.loads(out), "date": date.today().isoformat()}
    record["python"] = str(Path(session.bin, "python"))
    session.run(
        *("python", "-m", "pytest", "-n", "2", "--dist", "loadfile", "--no-loadscope-reorder"),
        *("--sample=0.1", f"--junitxml={report}", "-p", "no:cacheprovider"),
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
    session.run("python", "-m", "pytest", "-m", "", "tests/faults/test_s3.py", env=QUIET)


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
        *(found[-1], "-m", "pytest", "-p", "no:cacheprovider", "-m", "", "tests/versions"),
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
    before, rest = PAGE.read_text(encoding="utf-8").split(BEGIN)
    made = [*rows(found), "", *skips(found), "", *upgrades(), ""]
    text = "\n".join([*made, END]) + rest.partition(END)[2]
    PAGE.write_text(f"{before}{BEGIN}\n{text}", encoding="utf-8")
    session.log(f"{PAGE} says it of {', '.join(found) or 'none'}")


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
