"""What a restore of a changed program plans, and of models rebuilt for real checkpoints."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import tensorflow as tf
from zoo import rebuilt
from zoo.corpus import ITEMS

import tfckpt
from golden.files import check, check_digests, check_folder
from golden.lines import sections
from golden.plan_lines import plan_lines
from golden.programs import BASE, EDITS, KINDS, OPTIMIZERS, POLICIES, SOURCES, Program
from golden.restores import RESTORES
from golden.subjects import KERASES, fresh

if TYPE_CHECKING:
    from pathlib import Path

ALL = ("strict", "partly", "weights", "finetune")
HEADS = ("another head", "a wider head")


@pytest.mark.parametrize("kind", SOURCES)
def test_an_edited_program_is_restored_by_the_plan_that_it_was(kind: str, tmp_path: Path) -> None:
    found: dict[str, list[str]] = {}
    for flavour in KERASES:
        source = Program(kind, optimizer=SOURCES[kind]).model(fresh(flavour))
        files = written(source, tmp_path / flavour)
        for title, (of, program, policies) in programs(kind, flavour).items():
            model = program.model(fresh(of))
            for writer, path in files.items():
                for policy in policies if writer == "tfckpt" else policies[:1]:
                    plan = tfckpt.plan(path, model, policy=POLICIES[policy])
                    found[f"{flavour} {writer}: {title}, {policy}"] = plan_lines(plan)
    check(f"plans/edited/{kind}", sections(found))


def written(model: Any, to: Path) -> dict[str, str]:
    model.save_weights(file := f"{to}.weights.h5")
    return {
        "tfckpt": tfckpt.Checkpoint(model=model).save(f"{to}/ours/ckpt"),
        "tf.train": tf.train.Checkpoint(model=model).save(f"{to}/theirs/ckpt"),
        ".weights.h5": file,
    }


def programs(kind: str, flavour: str) -> dict[str, tuple[str, Program, tuple[str, ...]]]:
    """What a checkpoint is restored into: its flavour, the program, and by which policies."""
    (other,) = {*KERASES} - {flavour}
    trained_by = SOURCES[kind]
    found = {
        edit: (flavour, Program(kind, layers, trained_by), ALL if edit in HEADS else ALL[:1])
        for edit, layers in EDITS.items()
    }
    halved = Program(kind, BASE, trained_by, "float16")
    found["halved"] = flavour, halved, ("strict", "cast")
    found["the other flavour"] = other, Program(kind, BASE, trained_by), ALL[:1]
    for each in KINDS:
        if each != kind:
            found[f"as {each}"] = flavour, Program(each, BASE, trained_by), ALL[:1]
    if trained_by != "none":
        for each in OPTIMIZERS[1:]:
            found[f"optimizer {each}"] = flavour, Program(kind, BASE, each), ALL
    return found


@pytest.mark.parametrize("name", RESTORES)
def test_a_real_checkpoint_is_restored_by_the_plan_that_it_was(name: str, corpus: Path) -> None:
    file = ITEMS[name]["prefix"] if "prefix" in ITEMS[name] else rebuilt.KERAS_FILES[name][0]
    found: list[str] = []
    for flavour in KERASES:
        for number, (make, rules) in enumerate(RESTORES[name]):
            objects = make(fresh(flavour))
            for policy in ({}, rules) if rules else ({},):
                plan = tfckpt.plan(f"{corpus}/{name}/{file}", policy=policy, **objects)
                title = f"{flavour} {number} {' '.join(policy) or 'strict'}"
                found += [f"{title}: {line}" for line in plan_lines(plan)]
    check_digests(f"plans/corpus/{name}", found)


def test_no_file_is_left_of_what_is_gone() -> None:
    check_folder("plans/edited", SOURCES)
    check_folder("plans/corpus", RESTORES)
