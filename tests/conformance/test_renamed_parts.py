"""Whatever TensorFlow and Keras rename of what they do not document, no wrong value is silent.

Each private name that tfckpt uses is taken away in turn, in children of one process, and small
trainings and saves are run: each is exact, or says that it is not, or is refused with an error of
tfckpt's that names what is absent. A few are renamed in the sources of TensorFlow and Keras, each
in a process of its own.

``python tests/zoo/renamed.py NAME …`` writes what happens with names, or with all of them.
"""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from zoo import renamed

PROJECT = Path(__file__).resolve().parents[2]
# TensorFlow's traces, generators and data, Keras's loop and slots: what once was silent.
FEW = [
    *("_seed", "_seed2", "_reshuffle_each_iteration", "_rng", "_trainable_variables"),
    *("_initial_epoch", "_should_eval", "lookup_table", "get_global_attribute", "_value"),
]
# In a package: what tfckpt has names of its own for, variables of `fit`, modules that moved; and
# once more what was silent.
IN_KERAS = [
    *("_trainable_variables", "_initial_epoch", "_should_eval", "_value", "Functional"),
    *("train_function", "epoch_iterator", "_distributed_dataset", "_current_iterator"),
    *("seed_generator", "global_seed_generator", "get_global_attribute"),
]
IN_TF_KERAS = [
    *("train_function", "_should_eval", "data_handler", "_training_state", "_index_dict"),
    *("RandomGenerator", "to_snake_case"),
]
IN_TENSORFLOW = [
    *(
        "functional_saver",
        "MultiDeviceSaver",
        "read_variable_op",
        "global_generator",
    )
]
IN_DATA = ["_seed", "_seed2", "_reshuffle_each_iteration", "_inputs"]
IN_PACKAGES = [
    *(("keras", name, ("saves", "fits")) for name in IN_KERAS),
    *(("tf_keras", name, ("saves of tf_keras", "fits of tf_keras")) for name in IN_TF_KERAS),
    *(("tensorflow.python", name, ("plain", "saves")) for name in IN_TENSORFLOW),
    *(("tensorflow.python.data", name, ("plain", "fits")) for name in IN_DATA),
]
needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")


def outcomes(*names: str) -> list[list[str]]:
    """Name, scenario, outcome and text of each run."""
    done = subprocess.run(
        [sys.executable, renamed.__file__, *names],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(PROJECT)},
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def of_package(package: str, name: str, scenarios: tuple[str, ...]) -> dict[str, Any]:
    """The outcome of each scenario, with a name renamed in a package; "" renames nothing."""
    done = subprocess.run(
        [sys.executable, "-m", "zoo.renamed_packages", package, name, *scenarios],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(PROJECT), str(PROJECT / "tests")])},
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@functools.cache
def as_they_are(scenarios: tuple[str, ...]) -> dict[str, Any]:
    return of_package("", "", scenarios)


def check(found: list[list[str]]) -> None:
    table: dict[str, list[str]] = {}
    for name, scenario, kind, _ in found:
        table.setdefault(kind, []).append(f"{name} ({scenario})" if name else scenario)
    for kind, those in sorted(table.items()):
        print(f"{kind}: {len(those)}: {', '.join(those)}")
    assert [each for each in found if not each[0] and each[2] != "exact"] == []
    assert [each for each in found if each[2] not in ("exact", "said", "refused")] == []


@needs_fork
def test_a_few_renamed_parts_are_never_silent() -> None:
    check(outcomes(*FEW))


@pytest.mark.long
@needs_fork
def test_no_renamed_part_is_silent() -> None:
    check(outcomes())


@pytest.mark.long
@needs_fork
@pytest.mark.parametrize(("package", "name", "scenarios"), IN_PACKAGES)
def test_nothing_that_a_package_renames_is_silent(
    package: str, name: str, scenarios: tuple[str, ...]
) -> None:
    known = as_they_are(scenarios)
    lines = [["", scenario, *result] for scenario, result in known.items()]
    for scenario, result in of_package(package, name, scenarios).items():
        kind = renamed.judged(result, known.get(scenario, ("", "")))
        lines.append([name, scenario, kind, result[1]])
    check(lines)
