"""Whatever TensorFlow and Keras rename of what they do not document, no wrong value is silent.

Each private name that tfckpt uses is taken away in turn, in children of one process, and small
trainings and saves are run: each is exact, or says that it is not, or is refused with an error of
tfckpt's that names what is absent.
"""

from __future__ import annotations

import os

import pytest
from zoo import renamed
from zoo.forkserver import ForkServer, results

# TensorFlow's traces, generators and data, Keras's loop and slots: what once was silent.
FEW = [
    *(("_seed", "plain"), ("_rng", "fits"), ("_trainable_variables", "saves")),
    *(("_should_eval", "fits of tf_keras"), ("_value", "saves")),
]
ALL = [
    (name, scenario)
    for name, modules in renamed.names().items()
    for scenario in dict.fromkeys(each for module in modules for each in renamed.OF_MODULES[module])
]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.parametrize(
    "runs", [FEW, pytest.param(ALL, marks=pytest.mark.long)], ids=["few", "all"]
)
def test_no_renamed_part_is_silent(runs):
    plain = [("", scenario) for scenario in dict.fromkeys(scenario for _, scenario in runs)]
    with ForkServer(preload=("tensorflow", "keras", "tf_keras", "zoo.renamed")) as server:
        requests = [("zoo.renamed:outcome", *run) for run in (*plain, *runs)]
        found = dict(
            zip((*plain, *runs), results(server.run_many(requests, timeout=600)), strict=True)
        )
    table = {}
    for (name, scenario), result in found.items():
        kind = renamed.judged(result, found["", scenario])
        table.setdefault(kind, []).append(f"{name or 'nothing'} ({scenario}): {result[1]}")
        assert name or kind == "exact", result
    assert table.keys() <= {"exact", "said", "refused"}, table
