"""Everything that README.md and docs/ show, run in the order of the page.

Python of one section shares a namespace, which begins with what the script of the fixture defines.
A block of text after one of Python is what it prints, ``...`` in it stands for anything; a fence
that says ``raises`` is of Python that ends with an error, which the text shows. Lines
after a ``$`` are what the command prints; without any, its exit status counts alone, which is 0
unless the fence says ``exit=1``. A fence that says ``killed`` is of a program that is killed as
soon as it has printed the last line shown. Of a ``pip install``, only the extras are checked. YAML
is loaded as a config, and one that begins with the path of a file is in that file from the start;
a fence that says ``invalid`` is of one that is refused, ``other`` of another program's YAML.

README.md and the pages for newcomers are stricter: a reader pastes them from top to bottom into an
empty directory, the four pages to start with one after the other, so nothing is there that they do
not make themselves, and all Python of a page shares one namespace. Python that begins with the path
of a file is what the reader saves there.
"""

from __future__ import annotations

import configparser
import contextlib
import dataclasses
import doctest
import io
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from zoo.command_line import Ended
from zoo.forkserver import ForkServer

from tfckpt.errors import PolicyError, TfckptError
from tfckpt.policy import load_config

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PROJECT = Path(__file__).resolve().parents[2]
README = PROJECT / "README.md"
PAGES = [README, *sorted((PROJECT / "docs").glob("*.md"))]
FOUR = [PROJECT / "docs" / f"{name}.md" for name in ("index", "resume", "finetune", "look")]
PASTED = [[README], FOUR, [PROJECT / "docs" / "coming.md"]]
OTHERS = [page for page in PAGES if not any(page in pasted for pasted in PASTED)]
LANGUAGES = {"python", "console", "yaml", "json", "text"}
KILLED = Path(__file__).with_name("killed.py")
FENCE = re.compile(r"^```(\w*)(.*)\n((?:.*\n)*?)^```$", re.MULTILINE)


@dataclasses.dataclass(frozen=True)
class Block:
    """A fenced block; ``expected`` is the text right after one of Python."""

    place: str
    section: str
    language: str
    words: list[str]
    text: str
    line: int
    expected: str | None = None


def blocks(page: Path) -> Iterator[Block]:
    content = page.read_text(encoding="utf-8")
    found: list[Block] = []
    for match in FENCE.finditer(content):
        before = content[: match.start()]
        line = before.count("\n") + 1
        outside = FENCE.sub("", before)
        section = re.findall(r"^#+ (.*)$", outside, re.MULTILINE)[-1]
        language, words, text = match.groups()
        if language == "text" and found and found[-1].language == "python":
            found[-1] = dataclasses.replace(found[-1], expected=text)
            continue
        place = f"{page.name}:{line}"
        found.append(Block(place, section, language, words.split(), text, line))
    yield from found


def compare(block: Block, got: str, expected: str) -> None:
    matches = doctest.OutputChecker().check_output(expected, got, doctest.ELLIPSIS)
    assert matches, f"{block.place} shows\n{expected}\nand what is printed is\n{got}"


def run_python(block: Block, page: Path, names: dict[str, Any]) -> None:
    if found := re.match(r"# ([\w/]+\.py)\n", block.text):
        Path(found[1]).write_text(block.text, encoding="utf-8")
        return
    printed = io.StringIO()
    code = compile("\n" * block.line + block.text, str(page), "exec")
    with contextlib.redirect_stdout(printed):
        if "raises" in block.words:
            with pytest.raises(TfckptError) as raised:
                exec(code, names)
            print(f"{raised.type.__name__}: {raised.value}")
        else:
            exec(code, names)
    if block.expected is not None:
        compare(block, printed.getvalue(), block.expected)


def run_command(command: str, server: ForkServer) -> Ended:
    """What a shell does; tfckpt alone where TensorFlow is imported already, which takes seconds."""
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    program, *arguments = shlex.split(command)
    if program == "tfckpt" and not set(command) & set("|&;<>$*"):
        there = str(Path.cwd()), environment
        ended = server.run("zoo.command_line:elsewhere", arguments, *there, timeout=120.0)
        return Ended(*ended.result())
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {command}"],
        check=False,
        capture_output=True,
        text=True,
        env=environment,
    )
    killed = done.returncode < 0  # the shell gave its process to the program; else it says 128 + 9
    return Ended(128 - done.returncode if killed else done.returncode, done.stdout, done.stderr)


def check_extras(command: str) -> None:
    """Nothing is installed: the extras that a ``pip install`` names are those of setup.cfg."""
    setup = configparser.ConfigParser()
    setup.read(PROJECT / "setup.cfg", encoding="utf-8")
    named = re.findall(r"\[([\w,-]+)\]", command)
    assert set(",".join(named).split(",")) <= {"", *setup["options.extras_require"]}, command


def run_console(block: Block, server: ForkServer) -> None:
    status = int(next((w.removeprefix("exit=") for w in block.words if "=" in w), "0"))
    for chunk in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
        command, _, expected = chunk.partition("\n")
        if command.startswith("pip install"):
            check_extras(command)
            continue
        if "killed" in block.words:
            last = shlex.quote(expected.splitlines()[-1])
            command = command.replace("python ", f"python {KILLED} {last} ")
            status = 128 + signal.SIGKILL
        if command.startswith("make "):  # that it is there; what it does is other tests' business
            command = f"make -n -C '{PROJECT}' {command.removeprefix('make ')}"
        if shutil.which("jq") is None:
            command = command.partition(" | jq")[0]
        ended = run_command(command, server)
        assert ended.status == status, f"{block.place}: {command}\n{ended.out}{ended.err}"
        if expected:
            compare(block, ended.out or ended.err, expected)


def run_yaml(block: Block) -> None:
    if "other" in block.words:
        yaml.safe_load(block.text)
        return
    first = block.text.partition("\n")[0]
    file = Path(first.removeprefix("# ")) if first.endswith(".yaml") else Path("shown.yaml")
    file.write_text(block.text, encoding="utf-8")
    if "invalid" in block.words:
        with pytest.raises(PolicyError):
            load_config(file)
    else:
        load_config(file)


@pytest.fixture(scope="module")
def server() -> Iterator[ForkServer]:
    if not hasattr(os, "fork"):
        pytest.skip("no fork on this system")
    with ForkServer() as server:
        yield server


@pytest.mark.parametrize("page", OTHERS, ids=lambda page: page.name)
def test_what_a_page_shows_is_what_happens(
    page: Path,
    place: Path,
    fresh: Callable[[], dict[str, Any]],
    server: ForkServer,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    shown = list(blocks(page))
    if any("s3://" in block.text for block in shown):
        request.getfixturevalue("s3")
    for block in shown:
        if block.language == "yaml":
            run_yaml(block)
    section, names = "", {}
    for block in shown:
        if block.section != section:
            section, names = block.section, fresh()
            monkeypatch.setenv("RUN_DIR", f"runs/{section.replace(' ', '_')}")
        if block.language == "python":
            run_python(block, page, names)
        elif block.language == "console":
            run_console(block, server)
        elif block.language == "json":
            json.loads(block.text)


@pytest.mark.parametrize("pages", PASTED, ids=lambda pages: pages[0].name)
def test_what_newcomers_read_runs_as_it_is_pasted(
    pages: list[Path], tmp_path: Path, server: ForkServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=os.pathsep)
    monkeypatch.setenv("RUN_DIR", "")  # which the page sets; afterwards it is as it was
    monkeypatch.delenv("RUN_DIR")
    for page in pages:
        names: dict[str, Any] = {"__name__": "__main__"}
        for block in blocks(page):
            if block.language == "yaml":
                run_yaml(block)
            elif block.language == "python":
                run_python(block, page, names)
            elif block.language == "console":
                run_console(block, server)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_block_says_what_it_is(page: Path) -> None:
    wrong = [block.place for block in blocks(page) if block.language not in LANGUAGES]
    assert not wrong


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_within_the_project_lead_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text(encoding="utf-8"))
    assert all((page.parent / target).exists() for target in targets), targets
