"""What all tests share: the environment of TensorFlow, both Keras flavours, the corpus, Hypothesis.

The environment is set before any test can import TensorFlow, and TensorFlow is imported only by the
tests that ask for it, so that the tests of the light half stay light.
"""

from __future__ import annotations

import gc
import importlib
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from zoo.corpus import CORPUS

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ["KERAS_BACKEND"] = "tensorflow"
# oneDNN chooses kernels by machine, and with them the last bits of a result.
os.environ["TF_ENABLE_ONEDNN_OPTS"] = "0"
# It would make `tf.keras` tf_keras; here tf_keras is a module of its own, beside Keras 3. Some of
# the clients in tests/clients know no other.
if os.environ.get("TFCKPT_CLIENTS") == "tf_keras":
    os.environ["TF_USE_LEGACY_KERAS"] = "1"
else:
    os.environ.pop("TF_USE_LEGACY_KERAS", None)

# Loading TensorFlow or tracing a model inside the first example says nothing about the code.
settings.register_profile("tfckpt", deadline=None, print_blob=True)
settings.load_profile("tfckpt")

# Thousands of saves wait for the disk until each is on it; memory, where there is room, does not.
_MEMORY = Path("/dev/shm")
_WRITABLE = "TMPDIR" not in os.environ and os.access(_MEMORY, os.W_OK)
if _WRITABLE and shutil.disk_usage(_MEMORY).free > 8 << 30:
    os.environ["TMPDIR"] = str(_MEMORY)

PROJECT = Path(__file__).resolve().parent.parent


@pytest.fixture(autouse=True, scope="module")
def _what_is_left_is_not_walked_again() -> Iterator[None]:
    """A full collection takes seconds after some thousand tests: TensorFlow keeps its traces."""
    yield
    gc.collect()
    gc.freeze()


@pytest.fixture(params=["keras3", "tf_keras"])
def flavour(request: pytest.FixtureRequest) -> Any:
    """The module ``keras`` (Keras 3), then the module ``tf_keras``."""
    if request.param == "tf_keras":
        return pytest.importorskip("tf_keras")
    return importlib.import_module("keras")


@pytest.fixture
def stop(flavour) -> Callable[[int, int], Any]:
    """``stop(epoch, batch)``: a callback that ends the process there, as far as a test can."""

    class Stop(flavour.callbacks.Callback):
        def __init__(self, epoch: int, batch: int) -> None:
            super().__init__()
            self.at = (epoch, batch)
            self.epoch = -1

        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            self.epoch = epoch

        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
            if (self.epoch, batch) == self.at:
                raise KeyboardInterrupt

    return Stop


@pytest.fixture(scope="session")
def corpus() -> Path:
    """The directory of other people's checkpoints; its README.md says what they are."""
    return CORPUS


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """A clone that stands alone is complete: tests of other people's checkpoints are no part."""
    if not CORPUS.is_dir():
        absent = [item for item in items if "corpus" in getattr(item, "fixturenames", ())]
        config.hook.pytest_deselected(items=absent)
        items[:] = [item for item in items if item not in set(absent)]


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """What the tests of faults, attacks and pairs of models have tried, with seeds.

    They print it; here it is shown although they passed.
    """
    if not CORPUS.is_dir():
        where = f"there are none in {CORPUS}, TFCKPT_CORPUS names another folder"
        terminalreporter.section(f"without other people's checkpoints: {where}", "-")
    pairs = "tests/property/test_model_pairs", "tests/property/test_simulated_pairs"
    shown = ("tests/faults/", "tests/attacks/", *pairs)
    passed = terminalreporter.getreports("passed")
    for report in sorted(passed, key=lambda report: report.nodeid):
        if report.nodeid.startswith(shown) and report.capstdout.strip():
            terminalreporter.section(report.nodeid.partition("/")[2], "-")
            terminalreporter.line(report.capstdout.strip())
