"""Draw the badges of README.md: what setup.cfg and the table of docs/versions.md say.

``python docs/pictures/badges.py`` writes them; a test compares them with what this would write.
"""

from __future__ import annotations

import configparser
import re
from pathlib import Path

HERE = Path(__file__).resolve().parent
PROJECT = HERE.parents[1]
LABEL, VALUE, TEXT = "#57606a", "#0969da", "#ffffff"
CHARACTER, PADDING, HEIGHT = 7, 8, 20


def badges() -> dict[str, str]:
    """File name → the badge."""
    setup = configparser.ConfigParser()
    setup.read(PROJECT / "setup.cfg", encoding="utf-8")
    metadata, options = setup["metadata"], setup["options"]
    page = (PROJECT / "docs" / "versions.md").read_text(encoding="utf-8")
    released = [row.split("|") for row in re.findall(r"^\| 3\..*$", page, re.MULTILINE)]
    tensorflow, keras = (
        [row[column].strip() for row in released if "rc" not in row[2]] for column in (2, 3)
    )
    said = {
        "python": f"{options['python_requires'].removeprefix('>=')} and later",
        "tensorflow": f"{minor(tensorflow[0])} to {minor(tensorflow[-1])}",
        "keras": f"{minor(keras[0])} to {minor(keras[-1])}, tf_keras",
        "license": metadata["license_expression"].replace("-", " "),
    }
    names = {"tensorflow": "TensorFlow", "keras": "Keras", "python": "Python"}
    return {f"{key}.svg": badge(names.get(key, key), value) for key, value in said.items()}


def minor(version: str) -> str:
    return ".".join(version.split(".")[:2])


def badge(label: str, value: str) -> str:
    left, right = (len(text) * CHARACTER + 2 * PADDING for text in (label, value))
    text = (
        f'<text x="{{x}}" y="14" fill="{TEXT}" text-anchor="middle" '
        'font-family="Verdana,DejaVu Sans,sans-serif" font-size="11">{said}</text>'
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + right}" height="{HEIGHT}" '
        f'role="img"><title>{label}: {value}</title>'
        f'<rect width="{left + right}" height="{HEIGHT}" rx="3" fill="{VALUE}"/>'
        f'<rect width="{left}" height="{HEIGHT}" rx="3" fill="{LABEL}"/>'
        f"{text.format(x=left / 2, said=label)}{text.format(x=left + right / 2, said=value)}"
        "</svg>\n"
    )


if __name__ == "__main__":
    for name, drawn in badges().items():
        (HERE / name).write_text(drawn, encoding="utf-8")
