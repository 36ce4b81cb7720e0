"""Words that were retired stay out: a reader who knows TensorFlow meets no word of our own."""

from __future__ import annotations

import re
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
# Each with the word to use; quoted, a word may still be the key of a record that was written once.
RETIRED = {
    r"untold|told": "unnamed or named; known; logged",
    r"misled": "conflict",
    r"doubt(s|ed)?": "ambiguity",
    r"tid(y|ied|ies|ying)|debris": "recovery, leftover files",
    r"spoilt": "nonfinite",
    r"artefacts?": "checkpoint",
    r"descent": "lineage",
    r"(?<!there )(?<!it )is none\b(?! of)": "is not a valid …",
    r"is no (order|number|slice|type|shape|name|mapping|list)": "is not a valid …",
    r"anew": "again, from scratch",
    r"side_by_side|together_with": "in parallel",
    r"flavours?|colours?|behaviours?|initialis\w+|normalis\w+|serialis\w+|recognis\w+": "American",
}
TEXT = re.compile("|".join(rf'(?<!")\b(?:{word})\b|\b(?:{word})\b(?!")' for word in RETIRED))
FILES = [
    *sorted((PROJECT / "tfckpt").rglob("*.py")),
    *sorted((PROJECT / "docs").glob("*.md")),
    *sorted((PROJECT / "configs").iterdir()),
    PROJECT / "tfckpt" / "policy" / "schema.json",
    *(PROJECT / f"{name}.md" for name in ("README", "CONTRIBUTING", "SECURITY", "CHANGELOG")),
]


def test_no_retired_word() -> None:
    found = [
        f"{path.name}:{number}: {match[0]!r}"
        for path in FILES
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        for match in TEXT.finditer(line)
    ]
    assert not found, f"{found}\nwrite: {RETIRED}"
