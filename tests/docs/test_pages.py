"""Everything that README.md, docs/ and docstrings show, run in the order of the page.

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
import importlib
import io
import json
import os
import pkgutil
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from zoo.command_line import Ended
from zoo.forkserver import ForkServer

import tfckpt
from tfckpt.errors import PolicyError, TfckptError
from tfckpt.policy import load_config

PROJECT = Path(__file__).resolve().parents[2]
README = PROJECT / "README.md"
PAGES = [README, *sorted((PROJECT / "docs").glob("*.md"))]
FOUR = [PROJECT / "docs" / f"{name}.md" for name in ("index", "resume", "finetune", "look")]
PASTED = [[README], FOUR, [PROJECT / "docs" / "coming.md"]]
OTHERS = [page for page in PAGES if not any(page in pasted for pasted in PASTED)]
LANGUAGES = {"python", "console", "yaml", "json", "text"}
KILLED = Path(__file__).with_name("killed.py")
FENCE = re.compile(r"^```(\w*)(.*)\n((?:.*\n)*?)^```$", re.MULTILINE)
MODULES = ["tfckpt", *(m.name for m in pkgutil.walk_packages(tfckpt.__path__, "tfckpt."))]


@dataclasses.dataclass
class Block:
    """A fenced block; ``expected`` is the text right after one of Python."""

    place: str
    section: str
    language: str
    words: list[str]
    text: str
    line: int
    expected: str | None = None

    def compare(self, got: str, expected: str) -> None:
        matches = doctest.OutputChecker().check_output(expected, got, doctest.ELLIPSIS)
        assert matches, f"{self.place} shows\n{expected}\nand what is printed is\n{got}"


def blocks(page: Path) -> list[Block]:
    content, found = page.read_text(encoding="utf-8"), list[Block]()
    for match in FENCE.finditer(content):
        before = content[: match.start()]
        line = before.count("\n") + 1
        section = re.findall(r"^#+ (.*)$", FENCE.sub("", before), re.MULTILINE)[-1]
        language, words, text = match.groups()
        if language == "text" and found and found[-1].language == "python":
            found[-1].expected = text
            continue
        place = f"{page.name}:{line}"
        found.append(Block(place, section, language, words.split(), text, line))
    return found


@dataclasses.dataclass
class Reader:
    """Does what a page shows; ``names`` is what Python has defined."""

    page: Path
    server: ForkServer
    names: dict[str, Any]

    def follow(self, block: Block) -> None:
        run = getattr(self, block.language, None)
        if run is not None:
            run(block)

    def python(self, block: Block) -> None:
        if found := re.match(r"# ([\w/]+\.py)\n", block.text):
            Path(found[1]).write_text(block.text, encoding="utf-8")
            return
        code = compile("\n" * block.line + block.text, str(self.page), "exec")
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            if "raises" in block.words:
                with pytest.raises(TfckptError) as raised:
                    exec(code, self.names)
                print(f"{raised.type.__name__}: {raised.value}")
            else:
                exec(code, self.names)
        if block.expected is not None:
            block.compare(printed.getvalue(), block.expected)

    def console(self, block: Block) -> None:
        status = int(next((w.removeprefix("exit=") for w in block.words if "=" in w), "0"))
        for chunk in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
            command, _, expected = chunk.partition("\n")
            if command.startswith("pip install"):
                check_extras(command)
                continue
            last = ""
            if "killed" in block.words:
                last, status = expected.splitlines()[-1], 128 + signal.SIGKILL
            if command.startswith("make "):  # that it is there; what it does others test
                command = f"make -n -C '{PROJECT}' {command.removeprefix('make ')}"
            if shutil.which("jq") is None:
                command = command.partition(" | jq")[0]
            ended = self.command(command, last)
            assert ended.status == status, f"{block.place}: {command}\n{ended.out}{ended.err}"
            if expected:
                block.compare(ended.out or ended.err, expected)

    def command(self, command: str, last: str) -> Ended:
        """What a shell does; tfckpt and Python where TensorFlow is imported already."""
        command, _, target = command.partition(" > ")
        environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
        words, here = shlex.split(command), str(Path.cwd())
        while "=" in words[0]:
            name, _, environment[name] = words.pop(0).partition("=")
        if words[0] not in ("tfckpt", "python") or set(command) & set("|&;<$*"):
            done = subprocess.run(
                ["bash", "-c", f"set -o pipefail; {command}"],
                check=False,
                capture_output=True,
                text=True,
                env=environment,
            )
            return Ended(done.returncode, done.stdout, done.stderr)
        if words[0] == "tfckpt":
            arguments = words[1:], here, environment
            ended = self.server.run("zoo.command_line:elsewhere", *arguments, timeout=120.0)
            told = Ended(*ended.result())
            if target:
                Path(target).write_text(told.out, encoding="utf-8")
            return told._replace(out="") if target else told
        printed = Path(tempfile.mkdtemp()) / "printed"
        arguments = words[1:], here, environment, str(printed), last
        ended = self.server.run((KILLED, "run"), *arguments, timeout=300.0)
        status = 128 + ended.signal if ended.signal else ended.value
        out = printed.read_text(encoding="utf-8")
        return Ended(1 if status is None else status, out, ended.output)

    def yaml(self, block: Block) -> None:
        if "other" in block.words:
            yaml.safe_load(block.text)
            return
        first = block.text.partition("\n")[0]
        file = Path(first.removeprefix("# ")) if first.endswith(".yaml") else Path("shown.yaml")
        file.write_text(block.text, encoding="utf-8")
        with pytest.raises(PolicyError) if "invalid" in block.words else contextlib.nullcontext():
            load_config(file)

    def json(self, block: Block) -> None:
        json.loads(block.text)


def check_extras(command: str) -> None:
    """Nothing is installed: the extras that a ``pip install`` names are those of setup.cfg."""
    setup = configparser.ConfigParser()
    setup.read(PROJECT / "setup.cfg", encoding="utf-8")
    named = re.findall(r"\[([\w,-]+)\]", command)
    assert set(",".join(named).split(",")) <= {"", *setup["options.extras_require"]}, command


@pytest.fixture(autouse=True)
def _tfckpt_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=os.pathsep)
    monkeypatch.setenv("RUN_DIR", "runs/new")  # which pages set; afterwards it is as it was


@pytest.mark.parametrize("page", OTHERS, ids=lambda page: page.name)
@pytest.mark.usefixtures("place")
def test_what_a_page_shows_is_what_happens(
    page: Path,
    server: ForkServer,
    fresh: Callable[[], dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    shown = blocks(page)
    if any("s3://" in block.text for block in shown):
        request.getfixturevalue("s3")
    reader, section = Reader(page, server, {}), ""
    for block in shown:
        if block.language == "yaml":
            reader.follow(block)
    for block in shown:
        if block.section != section:
            section, reader.names = block.section, {}
            monkeypatch.setenv("RUN_DIR", f"runs/{section.replace(' ', '_')}")
        if block.language == "python" and not reader.names:
            reader.names = fresh()
        if block.language != "yaml":
            reader.follow(block)


@pytest.mark.parametrize("pages", PASTED, ids=lambda pages: pages[0].name)
def test_what_newcomers_read_runs_as_it_is_pasted(
    pages: list[Path], tmp_path: Path, server: ForkServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.delenv("RUN_DIR")
    for page in pages:
        reader = Reader(page, server, {"__name__": "__main__"})
        for block in blocks(page):
            reader.follow(block)


def test_every_block_says_what_it_is_and_links_lead_somewhere() -> None:
    for page in PAGES:
        assert not [block.place for block in blocks(page) if block.language not in LANGUAGES]
        targets = re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text(encoding="utf-8"))
        assert not [target for target in targets if not (page.parent / target).exists()], page


def test_the_examples_of_docstrings_are_true(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    tried = 0
    for name in MODULES:
        found = doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS)
        assert not found.failed, capsys.readouterr().out
        tried += found.attempted
    assert tried > 100
