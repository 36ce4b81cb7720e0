"""Two managers side by side; see the package ``zoo``."""

from __future__ import annotations

import time

import pytest
from zoo.sides import START, both


@pytest.fixture
def clock(monkeypatch):
    """``clock[0] += HOUR``: an hour later."""
    now = [START]
    monkeypatch.setattr(time, "time", lambda: now[0])
    return now


@pytest.fixture
def sides(clock, tmp_path):
    """TensorFlow's manager and ours, each in a directory of its own."""
    return both(tmp_path, clock)
