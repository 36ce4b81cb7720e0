"""Draw docs/pictures/terminal-{light,dark}.svg: a session with the programs of docs/index.md.

``python docs/pictures/record.py`` runs them in an empty directory, killing the first one, and draws
what they print. Lines appear one after the other; a reader who asks for less motion sees all.
"""

from __future__ import annotations

import html
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent
PROJECT = HERE.parents[1]
START = PROJECT / "docs" / "index.md"
KILLED = PROJECT / "tests" / "docs" / "killed.py"
COLUMNS, LINE, COLUMN, MARGIN = 106, 19, 7.9, 18
TYPING, READING = 1.2, 0.35  # seconds before what a command prints, and for each line of it
COLORS = {
    "light": {"page": "#f6f8fa", "text": "#1f2328", "command": "#0550ae", "good": "#116329",
              "bad": "#a40e26", "faint": "#57606a"},
    "dark": {"page": "#161b22", "text": "#e6edf3", "command": "#79c0ff", "good": "#7ee787",
             "bad": "#ff7b72", "faint": "#8b949e"},
}  # fmt: skip
FINETUNE = """
import tfckpt
from train import build_model

model = build_model(classes=7, hidden="body")
print(tfckpt.restore("runs/first", model, include=["model/**"]{rules}))
"""
RULES = """,
    rename=[{"checkpoint": "model/hidden/**", "model": "model/body/**"}],
    exclude=["model/classes/**"],
"""
BETWEEN = re.compile(r"(saved ckpt-\d+\n)(?:saved ckpt-\d+\n)+(saved ckpt-\d+)")
# What is shown of what a command prints, by the color that it has.
SHOWN = {
    "faint": r"^saves to|^…",
    "good": r"^restored|^training|^saved|^accuracy|^Plan: \d|^  RENAMED  +\d|^    (rename|exc)",
    "bad": r"^Killed|^tfckpt\.errors|^  (MISSING|UNEXPECTED)  \w|^  MISMATCH  .*, \d",
    "text": r"^with this added|^this policy|^no checkpoint|^weights only|^    model/.*/kernel",
}


class Line(NamedTuple):
    """A line of the terminal, its color, and when it appears."""

    text: str
    color: str
    second: float


def programs(directory: Path) -> None:
    (train,) = re.findall(r"```python\n(# train\.py\n.*?)```", START.read_text(), re.DOTALL)
    (directory / "train.py").write_text(train, encoding="utf-8")
    (directory / "finetune.py").write_text(FINETUNE.format(rules=""), encoding="utf-8")
    (directory / "pasted.py").write_text(FINETUNE.format(rules=RULES), encoding="utf-8")


def run(directory: Path, *command: str) -> list[str]:
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONPATH": str(PROJECT)}
    done = subprocess.run(  # noqa: S603
        [sys.executable, *command],
        cwd=directory, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    printed = [line.replace(str(directory), "…") for line in done.stdout.splitlines()]
    if done.returncode < 0:
        return [*filter(None, printed), "Killed"]
    errors = done.stderr.partition("tfckpt.errors.")
    return printed + f"{errors[1]}{errors[2]}".splitlines()


def record() -> list[Line]:
    lines: list[Line] = []
    second = 0.0
    with tempfile.TemporaryDirectory() as made:
        directory = Path(made).resolve()
        programs(directory)
        for said, *command in (
            ("python train.py", str(KILLED), "saved ckpt-2", "train.py"),
            ("python train.py  # again", "train.py"),
            ("python finetune.py  # another head, another name", "finetune.py"),
            ("python pasted.py  # with the two lines", "pasted.py"),
        ):
            lines += [Line("", "text", second)] if lines else []
            lines.append(Line(f"$ {said}", "command", second))
            second += TYPING
            for text, color in shown(run(directory, *command)):
                lines.append(Line(text, color, second))
                second += READING
            second += TYPING
    return lines


def shown(printed: list[str]) -> list[tuple[str, str]]:
    """The lines of interest, with dots for those between the first save and the last."""
    text = BETWEEN.sub(r"\1…\n\2", "\n".join(printed))
    found = []
    for line in text.splitlines():
        color = next((color for color, what in SHOWN.items() if re.search(what, line)), None)
        if color is not None:
            found.append((line[:COLUMNS], color))
    return found


def draw(lines: list[Line], colors: dict[str, str]) -> str:
    width, height = MARGIN * 2 + COLUMNS * COLUMN, MARGIN * 2 + LINE * len(lines)
    rows = "\n".join(
        f'<text xml:space="preserve" class="{line.color}" '
        f'x="{MARGIN}" y="{MARGIN + LINE * (row + 0.75):.0f}" '
        f'style="animation-delay:{line.second:.2f}s">{html.escape(line.text)}</text>'
        for row, line in enumerate(lines)
    )
    classes = "".join(f".{name}{{fill:{color}}}" for name, color in colors.items())
    return f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" \
width="{width:.0f}" role="img">
<title>A training is killed and resumed; a restore is refused, then works as shown</title>
<style>
text{{font:13px ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;white-space:pre;\
animation:appear .2s both}}
@keyframes appear{{from{{opacity:0}}to{{opacity:1}}}}
@media (prefers-reduced-motion:reduce){{text{{animation:none}}}}
{classes}
</style>
<rect class="page" width="100%" height="100%" rx="6"/>
{rows}
</svg>
"""


def main() -> None:
    lines = record()
    for name, colors in COLORS.items():
        picture = HERE / f"terminal-{name}.svg"
        picture.write_text(draw(lines, colors), encoding="utf-8")
        print(f"{picture}: {picture.stat().st_size:,} bytes, {len(lines)} lines")


if __name__ == "__main__":
    main()
