"""What each command prints, where, and its exit status: in a pipe, at a terminal, and as JSON.

Beside the text, what holds of every command: no output moves a cursor, a mistake points
to the help, a document is as its published schema.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from zoo.command_line import Ended, check_document, no_json, run
from zoo.places import NOW, built

from golden.command_lines import COMMANDS
from golden.files import check, check_folder
from tfckpt.cli.parser import parsers

# What another machine, another version or another minute prints.
VERSIONS = "tensorflow|keras|tf_keras|tfckpt"
FACTS = "Python|others|file system|free space"
VARY = (
    (re.compile(r"[0-9a-f]{64}"), "<sha256>"),
    (re.compile(r"sha256 [0-9a-f]{12}…"), "sha256 <digest>…"),
    (re.compile(rf'"({VERSIONS}|{FACTS}|run)": "[^"]*"'), r'"\1": "…"'),
    (re.compile(r"\.[0-9a-f]{8}\.tmp"), ".<random>.tmp"),
    (re.compile(rf"^({VERSIONS}|{FACTS})(  +| \d).*", re.MULTILINE), r"\1 …"),
)
HELP = [f"{name} --help" for name in parsers()[1]]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with built(tmp_path_factory.mktemp("place")) as root:
        yield root


@pytest.mark.parametrize("verb", COMMANDS)
def test_a_command_prints_what_it_did(
    verb: str, made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = shutil.copytree(made, tmp_path / "place")
    monkeypatch.chdir(place)
    monkeypatch.setattr("time.time", lambda: NOW + 3700)
    for name, value in (("COLUMNS", "80"), ("TERM", "xterm"), ("COLORTERM", "")):
        monkeypatch.setenv(name, value)
    lines = []
    for line in [*COMMANDS[verb][1:].splitlines(), *(HELP if verb == "main" else ())]:
        words, terminal = shlex.split(line.removeprefix("@ ")), line.startswith("@ ")
        ended = run(*words, terminal=terminal)
        check_what_always_holds(words, ended, terminal)
        lines += [f"$ {line.encode('unicode_escape').decode()}", *shown(ended.out, place)]
        lines += [f"! {text}" for text in shown(ended.err, place)]
        lines += [f"= {ended.status}", ""]
    check(f"commands/{verb}", lines)


def check_what_always_holds(words: list[str], ended: Ended, terminal: bool) -> None:
    text = re.sub(r"\x1b\[[0-9;]*m", "", ended.out) if terminal else ended.out
    assert not {"\x1b", "\u202e"} & {*text, *ended.err}, words
    assert "Traceback" not in ended.err, words
    if ended.status == 2 and words[:1] != ["check"]:  # of these, also "unknown"
        assert not ended.out, words
        assert re.search(r"^try: tfckpt .*--help$", ended.err, re.MULTILINE), words
    if {"--help", "-h"} & {*words}:
        assert max(map(len, text.splitlines())) <= 80
        assert "examples:" in text
    if "--json" in words and ended.out:
        check_document(words, json.loads(ended.out, parse_constant=no_json))


def shown(text: str, place: Path) -> list[str]:
    text = text.replace(str(place), "<place>").replace("\x1b", "␛")
    for pattern, same in VARY:
        text = pattern.sub(same, text)
    return text.splitlines()


def test_no_golden_file_is_left() -> None:
    check_folder("commands", COMMANDS)
