"""Where a checkpoint's values come from: in its record, through resumes, and shown."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import tensorflow as tf

import tfckpt
from tfckpt.cli.main import main
from tfckpt.core.inventory import Inventory, Origin, Restored, Share
from tfckpt.policy import Policy
from tfckpt.stored.commits.record_file import CommitRecord, parse, render

if TYPE_CHECKING:
    from collections.abc import Callable

BODY = {"include": ["model/body/**"]}
FINETUNE: dict[str, Any] = {
    "version": 1,
    "manager": {"directory": "run"},
    "restore": {
        "first_of": [{"directory": "run"}, {"path": "zoo/ckpt-1", "policy": "finetune"}]
    },
    "policies": {"finetune": BODY},
}  # fmt: skip


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def model(flavour) -> Callable[[int], Any]:
    def build(seed: int) -> Any:
        network = flavour.Sequential(
            [
                flavour.Input((4,)),
                flavour.layers.Dense(3, name="body"),
                flavour.layers.Dense(2, name="head"),
            ]
        )
        random = np.random.default_rng(seed)
        network.set_weights([random.uniform(0.1, 1, w.shape) for w in network.get_weights()])
        return network

    return build


def recorded(path: str) -> list[dict[str, Any]]:
    record = json.loads(Path(path + ".tfckpt.json").read_text(encoding="utf-8"))
    lineage: list[dict[str, Any]] = record.get("lineage", [])
    return lineage


def digest(path: str) -> str:
    return hashlib.sha256(Path(path + ".index").read_bytes()).hexdigest()


def test_a_fine_tuned_run_says_from_what_and_a_resumed_one_still_does(model) -> None:
    zoo = tfckpt.Checkpoint(model=model(1)).save("zoo/ckpt")
    assert recorded(zoo) == []
    run = tfckpt.from_config(FINETUNE, model=model(2))
    run.restore()
    path = run.save()
    (restored,) = recorded(path)
    (source,) = restored["sources"]
    assert (source["path"], source["policy"]) == ("zoo/ckpt-1", "finetune")
    assert source["sha256"] == digest("zoo/ckpt-1")
    assert source["policy_sha256"] == Policy(include=("model/body/**",)).digest
    assert restored["counts"] == {"LOADED": 2, "EXCLUDED": 3}
    assert recorded(run.save()) == [restored]
    for _ in range(2):
        run = tfckpt.from_config(FINETUNE, model=model(3))
        assert run.restore().path.startswith("run/")
        assert recorded(run.save()) == [restored]
    manager = tfckpt.CheckpointManager(run.checkpoint, Path.cwd() / "run", max_to_keep=2)
    assert manager.restore_or_initialize() is not None
    assert recorded(manager.save()) == [restored]


def test_several_sources_and_shares_are_named(model) -> None:
    for seed, name in enumerate("abc"):
        tfckpt.Checkpoint(model=model(seed)).save(f"{name}/ckpt")
    head = {"average": ["b/ckpt-1", "c/ckpt-1"], "weights": [3, 1]}
    members = [
        {"path": "a/ckpt-1", "policy": BODY},
        {**head, "policy": {"include": ["model/head/**"]}},
    ]
    declared = {"version": 1, "manager": {"directory": "run"}, "restore": {"all_of": members}}
    run = tfckpt.from_config(declared, model=model(9))
    run.restore()
    (restored,) = recorded(run.save())
    first, second = restored["sources"]
    assert (first["path"], first["average"]) == ("a/ckpt-1", [])
    assert [(share["path"], share["sha256"], share["weight"]) for share in second["average"]] == [
        ("b/ckpt-1", digest("b/ckpt-1"), 0.75),
        ("c/ckpt-1", digest("c/ckpt-1"), 0.25),
    ]


def test_restores_add_up_until_one_gives_every_weight(flavour) -> None:
    def layer(name: str) -> Any:
        dense = flavour.layers.Dense(2, name=name)
        dense.build((None, 3))
        return dense

    tfckpt.Checkpoint(x=layer("x")).save("a/ckpt")
    tfckpt.Checkpoint(y=layer("y")).save("b/ckpt")
    checkpoint = tfckpt.Checkpoint(x=layer("x"), y=layer("y"))

    def sources() -> list[str]:
        lineage = recorded(checkpoint.write("run/one"))
        return [source["path"] for restored in lineage for source in restored["sources"]]

    checkpoint.restore("a/ckpt-1").expect_partial()
    checkpoint.restore("b/ckpt-1").expect_partial()
    assert sources() == ["a/ckpt-1", "b/ckpt-1"]
    both = checkpoint.save("both/ckpt")
    checkpoint.restore(both)
    assert sources() == [both]


def test_what_is_put_back_is_not_named(model) -> None:
    checkpoint = tfckpt.Checkpoint(model=model(1), more=tf.Variable(1.0))
    tfckpt.Checkpoint(model=model(2)).save("zoo/ckpt")
    status = checkpoint.restore("zoo/ckpt-1")
    with pytest.raises(tfckpt.StatusAssertionError, match="has its old value again"):
        status.assert_existing_objects_matched()
    assert recorded(checkpoint.save("run/ckpt")) == []
    with pytest.raises(tfckpt.CheckpointError):
        checkpoint.restore("zoo/ckpt-7")
    assert recorded(checkpoint.save("run/ckpt")) == []


def test_inspect_shows_it(model, capsys) -> None:
    tfckpt.Checkpoint(model=model(1)).save("zoo/ckpt")
    run = tfckpt.from_config(FINETUNE, model=model(2))
    run.restore()
    run.save()
    assert main(["tfckpt", "inspect", "run/ckpt-1"]) == 0
    out = capsys.readouterr().out
    assert f"from zoo/ckpt-1 (sha256 {digest('zoo/ckpt-1')[:12]}…)" in out
    assert "by policy 'finetune' (sha256 " in out
    assert "EXCLUDED 3, LOADED 2" in out
    assert main(["tfckpt", "inspect", "run/ckpt-1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["lineage"] == recorded("run/ckpt-1")
    assert main(["tfckpt", "inspect", "zoo/ckpt-1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["lineage"] == []


# The record

ORIGIN = Origin("zoo/a", "e3", "finetune", "44", (Share("b", "00", 0.25), Share("c", "01", 0.75)))
RECORD = CommitRecord(
    1,
    Inventory("run/ckpt-1", {}),
    "0" * 64,
    "2026-01-31T12:00:00+00:00",
    lineage=(Restored((ORIGIN,), {"LOADED": 2}),),
)


def test_what_is_written_is_read() -> None:
    data = render(RECORD)
    assert parse(data, "record", "run/ckpt-1") == RECORD
    assert parse(data, "record", "run/ckpt-1", head=True).lineage == RECORD.lineage


def changed(value: Any) -> bytes:
    """A record of that lineage, with the right checksum."""
    body, _, _ = render(RECORD).rpartition(b',\n"sha256": "')
    lines = []
    for line in body.split(b"\n"):
        own = line.startswith(b'"lineage"')
        lines.append(b'"lineage": ' + json.dumps(value).encode() + b"," if own else line)
    body = b"\n".join(lines)
    return body + b',\n"sha256": "' + hashlib.sha256(body).hexdigest().encode() + b'"\n}\n'


SOURCE: dict[str, Any] = {
    "path": "a", "sha256": "b", "policy": "c", "policy_sha256": "d", "average": [],
}  # fmt: skip


@pytest.mark.parametrize(
    "lineage",
    [
        {},
        "zoo/a",
        [3],
        [[]],
        [{}],
        [{"sources": [], "counts": []}],
        [{"sources": {}, "counts": {}}],
        [{"sources": [], "counts": {"LOADED": -1}}],
        [{"sources": [], "counts": {"LOADED": True}}],
        [{"sources": [None], "counts": {}}],
        [{"sources": [{**SOURCE, "path": 3}], "counts": {}}],
        [{"sources": [{**SOURCE, "sha256": None}], "counts": {}}],
        [{"sources": [{**SOURCE, "average": {}}], "counts": {}}],
        [{"sources": [{**SOURCE, "average": [{"path": "a", "sha256": "b"}]}], "counts": {}}],
        [
            {
                "sources": [
                    {**SOURCE, "average": [{"path": "a", "sha256": "b", "weight": float("nan")}]}
                ],
                "counts": {},
            }
        ],
    ],
)
def test_a_lineage_that_is_none_is_damage(lineage) -> None:
    with pytest.raises(tfckpt.DamagedCheckpointError, match="lineage"):
        parse(changed(lineage), "record", "run/ckpt-1")
