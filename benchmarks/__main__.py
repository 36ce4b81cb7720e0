"""``python -m benchmarks``: runs the workloads, prints their tables, writes the results."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import gc
import importlib.util
import json
import os
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("KERAS_BACKEND", "tensorflow")

import keras  # noqa: F401  imported before the first fork, as TensorFlow is

from benchmarks import (
    busy,
    crowded,
    first,
    going_on,
    limits,
    machine,
    overhead,
    planning,
    plots,
    quotes,
    report,
    resume,
    retention,
    rewrite,
    saving,
    startup,
    tenth,
    training,
)
from benchmarks.measure import FAILS, Result, Settings
from benchmarks.others import OTHERS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


SHARED_MEMORY = "/dev/shm"
WORKLOADS: dict[str, tuple[str, Callable[[Settings], list[Result]]]] = {
    "limits": ("Limits of the machine", limits.run),
    **{
        name: (f"{case.title}: save and restore", partial(saving.run, name))
        for name, case in saving.CASES.items()
    },
    "first": ("The first save and restore of a process", first.run),
    "crowded": ("Restores beside two busy processes", crowded.run),
    "tenth": ("Restore of a tenth", tenth.run),
    "training": ("Training with saves", training.run),
    "busy": ("Background saves beside busy Python", busy.run),
    "planning": ("Plans and differences", planning.run),
    "startup": ("Commands, from their start to their end", startup.run),
    "rewrite": ("Memory of rewriting and converting", rewrite.run),
    "retention": ("A year of saves", retention.run),
    "resume": ("An interruption", resume.run),
    "going_on": ("Until training goes on", going_on.run),
    "overhead": ("A callback while no save is due", overhead.run),
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--only", choices=WORKLOADS, action="append", help="may be repeated")
    parser.add_argument("--quick", action="store_true", help="small sizes: whether all runs")
    parser.add_argument("--json", action="store_true", help="print the results as JSON")
    parser.add_argument("--directory", default=".", help="the file system that is measured")
    parser.add_argument("--results", type=Path, help="where page, plots and numbers are written")
    parser.add_argument(
        "--redraw", action="store_true", help="measure nothing: pages and plots from --results"
    )
    given = parser.parse_args()
    if given.redraw:
        document = json.loads((given.results / "results.json").read_text())
        _write(given.results, document, [Result(**one) for one in document["results"]])
        return
    with _places(given.directory) as places:
        settings = Settings(given.quick, places["disk"], places.get("tmpfs"))
        about = machine.describe(settings)
        results = _run(given.only or list(WORKLOADS), settings)
    document = {"machine": about, "results": [dataclasses.asdict(one) for one in results]}
    if given.results:
        _write(given.results, document, results)
    if given.json:
        print(json.dumps(document))
    else:
        print(report.markdown(about, _titles(), results, ()))


def _titles() -> dict[str, str]:
    return {name: title for name, (title, _) in WORKLOADS.items()}


def _run(names: list[str], settings: Settings) -> list[Result]:
    absent = {one.name: one.absent() for one in OTHERS}
    for name, modules in absent.items():
        if modules:
            _say(f"{name} is left out: {', '.join(modules)} is not installed (the extra `bench`)")
    if settings.memory is None:
        _say(f"there is no {SHARED_MEMORY}: nothing is measured in memory")
    gc.collect()
    gc.freeze()  # what the forked processes share is not walked again in each
    results = []
    for number, name in enumerate(names):
        start = time.perf_counter()
        try:
            found = WORKLOADS[name][1](settings)
        except KeyboardInterrupt:
            _say(f"interrupted; there are no results of {', '.join(names[number:])}")
            break
        for one in found:
            if one.measure == FAILS:
                _say(f"{name}: {one.contestant} fails: {one.note}")
        results += found
        _say(f"{name}: {time.perf_counter() - start:.0f} s")
    return results


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


@contextlib.contextmanager
def _places(directory: str) -> Iterator[dict[str, str]]:
    """Scratch directories on disk and in memory, removed in the end."""
    with contextlib.ExitStack() as stack:
        scratch = partial(tempfile.TemporaryDirectory, prefix="tfckpt-bench-")
        places = {"disk": stack.enter_context(scratch(dir=Path(directory).resolve()))}
        if os.access(SHARED_MEMORY, os.W_OK):
            places["tmpfs"] = stack.enter_context(scratch(dir=SHARED_MEMORY))
        yield places


def _write(directory: Path, document: object, results: list[Result]) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "results.json").write_text(json.dumps(document, indent=1) + "\n")
    drawn: list[str] = []
    if importlib.util.find_spec("matplotlib"):
        drawn = plots.draw(results, directory)
    else:
        _say("nothing is drawn: matplotlib is not installed (the extra `bench`)")
    page = report.markdown(document["machine"], _titles(), results, drawn)
    (directory / "results.md").write_text(page)
    if directory.resolve() == quotes.RESULTS:
        quotes.update(page)


if __name__ == "__main__":
    main()
