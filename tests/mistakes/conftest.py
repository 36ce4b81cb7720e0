"""A fresh working directory for each mistake, with a finished run of a small model in it."""

from __future__ import annotations

import contextlib
import importlib
import os
import shutil
from typing import TYPE_CHECKING, Any

import pytest
from mistakes.scene import Interrupt, Seen, digits, eyes, fit
from zoo.forkserver import ForkServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@pytest.fixture
def keras() -> Any:
    return importlib.import_module("keras")


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory."""
    path = tmp_path / "project"
    path.mkdir()
    monkeypatch.chdir(path)
    return path


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Any], Path]:
    """``runs(keras)``: a training that is over; it saved at the end of each of its epochs."""
    made: dict[str, Path] = {}

    def run(keras: Any) -> Path:
        if keras.__name__ not in made:
            import tfckpt.callbacks

            path = made[keras.__name__] = tmp_path_factory.mktemp("runs")
            keras.utils.set_random_seed(3)
            model = digits(keras)
            fit(model, tfckpt.callbacks.resume(model, path / "digits", verbose=0))
        return made[keras.__name__]

    return run


@pytest.fixture
def run3(place: Path, keras: Any, runs: Callable[[Any], Path]) -> str:
    """The directory ``runs/digits`` with ``ckpt-1`` to ``ckpt-3``, of Keras 3."""
    shutil.copytree(runs(keras), place / "runs")
    return "runs/digits"


@pytest.fixture
def run(place: Path, flavour: Any, runs: Callable[[Any], Path]) -> str:
    """The same of either flavour."""
    shutil.copytree(runs(flavour), place / "runs")
    return "runs/digits"


@pytest.fixture
def model(keras: Any) -> Any:
    keras.utils.set_random_seed(3)
    return digits(keras)


@pytest.fixture
def tries(record_property: Callable[[str, object], None]) -> Any:
    """``with tries(model) as seen:`` a mistake; reports can tell what was seen of it."""

    @contextlib.contextmanager
    def trying(*things: Any) -> Iterator[Seen]:
        with eyes(*things) as seen:
            yield seen
        record_property("seen", seen.text)
        if seen.untouched is not None:
            record_property("untouched", seen.untouched)

    return trying


@pytest.fixture
def refused(tries: Any) -> Any:
    """``with refused(model) as seen:`` what raises an error, and leaves the model as it is."""

    @contextlib.contextmanager
    def refusing(*things: Any, error: type[BaseException] = Exception) -> Iterator[Seen]:
        with tries(*things) as seen:
            yield seen
        assert isinstance(seen.error, error), f"not refused, or by another error:\n{seen.text}"
        assert seen.untouched in (None, True), f"refused, and overwritten:\n{seen.text}"

    return refusing


@pytest.fixture
def told(tries: Any) -> Any:
    """``with told() as seen:`` what goes on, and is said."""

    @contextlib.contextmanager
    def telling() -> Iterator[Seen]:
        with tries() as seen:
            yield seen
        if seen.error is not None:
            raise seen.error
        seen.never_says("deprecated")  # by TensorFlow, of what tfckpt calls

    return telling


@pytest.fixture
def interrupted(flavour: Any) -> Callable[..., None]:
    """``interrupted(model, callback, at=(1, 2))``: a ``fit`` that ends before that batch."""

    def begin(model: Any, *callbacks: Any, at: tuple[int, int], **more: Any) -> None:
        with pytest.raises(KeyboardInterrupt):
            fit(model, *callbacks, Interrupt(flavour).at(*at), **more)

    return begin


@pytest.fixture(scope="session")
def server() -> Iterator[ForkServer]:
    """Processes of their own, for mounts that nobody else sees."""
    if not hasattr(os, "fork"):
        pytest.skip("no fork on this system")
    with ForkServer(preload=("tensorflow", "keras", "tfckpt", "mistakes.scene")) as server:
        yield server
