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
from zoo import s3_server
from zoo.forkserver import ForkServer, Outcome
from zoo.s3_server import BUCKET, KILLS, S3Server

import tfckpt

for package in ("s3fs", "moto.server"):
    pytest.importorskip(package, reason="needs s3fs and moto; setup.cfg has them in `test`")

KEEP = 2
SEED = 20250131


class Life:
    """Processes that save into one directory, one after the other, and what they were told."""

    def __init__(self, server: S3Server, forks: ForkServer, log: Path, name: str) -> None:
        self.server, self.forks, self.name, self.log = server, forks, name, log / name
        self.asked = 0  # how many requests its saves were

    def saves(self, n: int = 0, strike: str = "") -> Outcome:
        """Three, of which the last deletes the first; the n-th request is struck."""
        order = [self.server.url, n, strike]
        return self.forks.run((__file__, "saves"), self.name, str(self.log), order, timeout=300)

    def goes_on(self, name: str) -> Life:
        """A copy, with which another life goes on."""
        for key in self.server.objects(self.name):
            source = {"Bucket": BUCKET, "Key": f"{self.name}/{key}"}
            self.server.client.copy_object(Bucket=BUCKET, Key=f"{name}/{key}", CopySource=source)
        other = Life(self.server, self.forks, self.log.parent, name)
        other.log.write_text(self.log.read_text().replace(f"/{self.name}/", f"/{name}/"))
        return other

    def judge(self) -> None:
        """A new process finds what it must, and saves; nothing is left over."""
        told = [json.loads(line) for line in self.log.read_text().splitlines()]
        ended = self.forks.run((__file__, "next_process"), self.name, told, timeout=300)
        here = ended.result()
        assert self.server.objects(self.name) == sorted(here)
        assert "Uploads" not in self.server.client.list_multipart_uploads(Bucket=BUCKET)


def saves(name: str, log: str, order: list[Any]) -> None:
    """In a process of its own: what is tried is noted, and again when the save has returned."""
    from faults.scenes import Subject

    url, n, strike = order
    body = json.dumps({"n": n, "strike": strike, "pid": os.getpid()} if strike else {})
    urllib.request.urlopen(url + s3_server.CONTROL, body.encode()).close()
    subject = Subject(f"s3://{BUCKET}/{name}")
    found = subject.restore()
    with Path(log).open("a", buffering=1) as file:
        for step in range(found + 1, found + KEEP + 2):
            file.write(json.dumps([step, "tried"]) + "\n")
            file.write(json.dumps([step, subject.save(step)]) + "\n")


def next_process(name: str, told: list[tuple[int, str]]) -> list[str]:
    """In a process of its own: restore, read what was acknowledged, save; what must be there."""
    from faults.scenes import LAST, Subject

    run = f"s3://{BUCKET}/{name}"
    paths = {step: text for step, text in told if text.startswith(run)}
    subject, newest = Subject(run), max(paths, default=0)
    found = subject.restore()
    assert found in {newest, *(step for step, _ in told if step > newest)}, (found, told)
    # One whose save did not return may be there, too, and an older one gone for it.
    known = {*subject.manager.checkpoints, *paths.values()}
    for path in sorted(known, key=lambda path: int(path.rpartition("-")[2]))[-KEEP:]:
        step = Subject(run).read(path)
        assert paths.get(step, path) == path
    path = subject.save(LAST)
    assert path not in paths.values()
    hint = "`save` finds one: no checkpoint is replaced in an object store"
    with pytest.raises(tfckpt.SaveError, match=hint):
        subject.manager.save(checkpoint_number=int(path.rpartition("-")[2]))
    bases = [each.rpartition("/")[2] for each in subject.manager.checkpoints]
    assert path.endswith(bases[-1])
    assert len(bases) <= KEEP
    ends = (".data-00000-of-00002", ".data-00001-of-00002", ".index", ".tfckpt.json")
    return ["checkpoint", *(base + end for base in bases for end in ends)]


@pytest.fixture(scope="module")
def life(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Life]:
    """One that has saved three times."""
    with S3Server() as server, ForkServer(server.environment) as forks:
        life = Life(server, forks, tmp_path_factory.mktemp("told"), "undisturbed")
        life.saves().result()
        life.asked = len(server.calm())
        yield life


@pytest.mark.parametrize("kills", [1, pytest.param(50, marks=pytest.mark.long)])
def test_a_kill_loses_nothing_of_what_is_saved_there(life: Life, kills: int) -> None:
    draw = random.Random(SEED)
    print(f"seed {SEED}: {kills} kills at one of {life.asked} requests")
    for number in range(kills):
        killed = life.goes_on(f"killed-{number}")
        ended = killed.saves(draw.randrange(1, life.asked), draw.choice(KILLS))
        assert ended.signal == 9, ended
        life.server.calm()
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


def test_the_command_line_reads_and_prunes_there_without_tensorflow(life: Life) -> None:
    run = f"s3://{BUCKET}/{life.goes_on('commands').name}"
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
    left = {name.partition(".")[0] for name in life.server.objects("commands")}
    assert left == {"checkpoint", "ckpt-3"}
