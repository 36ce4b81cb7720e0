"""A real S3 server whose clients are killed, at requests drawn by a seed.

Each process is one: what saves and dies, and the next one, which restores and saves. Saved are a
variable, which tfckpt writes, and an iterator, which TensorFlow writes and tfckpt uploads.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from faults.scenes import SCENES, without_checkpoints
from zoo import s3_server
from zoo.forkserver import ForkServer, Outcome
from zoo.s3_server import BUCKET, KILLS, S3Server

import tfckpt

for package in ("s3fs", "moto.server"):
    pytest.importorskip(package, reason="needs s3fs and moto; setup.cfg has them in `test`")

SEED, SCENE = 20250131, "rotate"
PRELOAD = ("tensorflow", "keras", "tfckpt", "faults.scenes")


class Life:
    """Processes that save into one directory, one after the other, and what they were told."""

    def __init__(self, server: S3Server, forks: ForkServer, logs: Path, name: str) -> None:
        self.server, self.forks, self.name, self.log = server, forks, name, logs / name
        self.log.touch()
        self.arguments = f"s3://{BUCKET}/{name}", str(self.log)

    def goes_on(self, n: int = 0, strike: str = "") -> Outcome:
        """With the third save, which deletes the first; the n-th request is struck."""
        order = [self.server.url, n, strike]
        return self.forks.run((__file__, "attempt"), *self.arguments, order, timeout=300)

    def copied(self, name: str) -> Life:
        for key in self.server.objects(self.name):
            source = {"Bucket": BUCKET, "Key": f"{self.name}/{key}"}
            self.server.client.copy_object(Bucket=BUCKET, Key=f"{name}/{key}", CopySource=source)
        return Life(self.server, self.forks, self.log.parent, name)

    def judge(self) -> None:
        """A new process finds what it must, and saves; nothing is left over."""
        told = self.forks.run("faults.scenes:judge", SCENE, *self.arguments, timeout=300)
        assert told.result() == ""
        assert without_checkpoints({*self.server.objects(f"{self.name}/run/inner")}) == []
        assert "Uploads" not in self.server.client.list_multipart_uploads(Bucket=BUCKET)


def attempt(root: str, log: str, order: list[Any]) -> None:
    """In a process of its own; a checkpoint that is there is not saved over."""
    url, n, strike = order
    body = json.dumps({"n": n, "strike": strike, "pid": os.getpid()} if strike else {})
    urllib.request.urlopen(url + s3_server.CONTROL, body.encode()).close()
    assert SCENES[SCENE].act(root, log, list) == ([], "")
    subject = SCENES[SCENE].subject(root)
    subject.restore()
    with pytest.raises(tfckpt.SaveError, match="no checkpoint is replaced in an object store"):
        subject.manager.save(checkpoint_number=3)


@pytest.fixture(scope="module")
def lives(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Life, Life, int]]:
    """One that has saved twice, one that went on with a third save, and the requests of that."""
    with S3Server() as server, ForkServer(server.environment, PRELOAD) as forks:
        laid = Life(server, forks, tmp_path_factory.mktemp("told"), "laid")
        forks.run("faults.scenes:lay", SCENE, laid.arguments[0], timeout=300).result()
        whole = laid.copied("whole")
        whole.goes_on().result()
        yield laid, whole, len(server.calm()) * 3 // 4  # before it asks for one that is there


@pytest.mark.parametrize("kills", [1, pytest.param(50, marks=pytest.mark.long)])
def test_a_kill_loses_nothing_of_what_is_saved_there(lives, kills: int) -> None:
    laid, _, asked = lives
    draw = random.Random(SEED)
    print(f"seed {SEED}: {kills} kills at one of {asked} requests")
    for number in range(kills):
        killed = laid.copied(f"killed-{number}")
        ended = killed.goes_on(draw.randrange(1, asked), draw.choice(KILLS))
        assert ended.signal == 9, ended
        killed.server.calm()
        killed.judge()


# Stands for a machine without TensorFlow, which an import then does not find.
_WITHOUT_TENSORFLOW = """
import sys
sys.modules["tensorflow"] = None
from tfckpt.cli.main import main
for arguments in sys.argv[1:]:
    status = main(["tfckpt", *arguments.split()])
    print("status", status, flush=True)
"""


def test_the_command_line_reads_and_prunes_there_without_tensorflow(lives) -> None:
    life = lives[1]
    run = f"{life.arguments[0]}/run/inner"
    commands = [
        f"list {run}",
        f"inspect {run}",
        f"verify {run}",
        f"diff {run}/ckpt-2 {run}/ckpt-3",
        f"prune {run} --keep latest=1 --yes",
        f"list {run}",
        "list s3://no-such-bucket/run",
        "list nosuchscheme://bucket/run",
    ]
    done = subprocess.run(
        [sys.executable, "-c", _WITHOUT_TENSORFLOW, *commands],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, **life.server.environment},
    )
    listed, shown, verified, differing, _, left, *_ = done.stdout.split("status ")
    assert [line.split()[0] for line in listed.splitlines()[1:]] == ["ckpt-3", "ckpt-2"]
    assert "value" in shown
    assert verified.count("ok") == 2
    assert "different value" in differing
    assert [line.split()[0] for line in left.splitlines()[2:]] == ["ckpt-3"]
    assert "there is no bucket or container 'no-such-bucket'" in done.stderr
    assert "'tfckpt[remote]'" in done.stderr
    left = {name.partition(".")[0] for name in life.server.objects("whole/run/inner")}
    assert left == {"checkpoint", "ckpt-3"}
