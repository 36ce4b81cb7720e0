"""``python -m golden names``, ``corpus`` or ``commands`` writes these; without, all."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from golden.files import WRITES

HERE = Path(__file__).resolve().parent
MODULES = {
    "names": ["test_zoo.py"],
    "corpus": ["test_corpus.py"],
    "commands": ["test_commands.py"],
}

if __name__ == "__main__":
    kinds = sys.argv[1:] or [*MODULES]
    if unknown := {*kinds} - MODULES.keys():
        sys.exit(f"{', '.join(sorted(unknown))}: expected {', '.join(MODULES)}")
    os.environ[WRITES] = " ".join(kinds)
    modules = dict.fromkeys(str(HERE / file) for kind in kinds for file in MODULES[kind])
    sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", *modules]))
