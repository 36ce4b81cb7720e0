"""What a client's test says of its outcome, for the table in docs/clients.md."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

# `make test-clients` alone has their packages.
if "TFCKPT_CLIENTS" not in os.environ:
    collect_ignore_glob = ["test_*.py"]


@pytest.fixture
def outcome(record_property: Callable[[str, object], None]) -> Callable[[str], None]:
    """Note what the client needed, or why it was refused; without it, it ran unchanged."""
    return lambda words: record_property("outcome", words)
