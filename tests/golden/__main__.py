"""``python -m golden names``, ``corpus``, ``commands`` or ``plans`` writes these; without, all."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from golden.files import WRITES

TESTS = Path(__file__).resolve().parents[1]
MODULES = {
    "names": ["golden/test_zoo.py"],
    "corpus": ["golden/test_corpus.py"],
    "commands": ["golden/test_commands.py"],
    "plans": ["golden/test_zoo.py", "golden/test_plans.py", "docs/test_gallery.py"],
}


def main(kinds: list[str]) -> int:
    if unknown := {*kinds} - MODULES.keys():
        sys.exit(f"{', '.join(sorted(unknown))}: expected {', '.join(MODULES)}")
    kinds = kinds or [*MODULES]
    os.environ[WRITES] = " ".join(kinds)
    modules = dict.fromkeys(str(TESTS / file) for kind in kinds for file in MODULES[kind])
    return pytest.main(["-q", "-p", "no:cacheprovider", *modules])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
