"""A real S3 server whose clients are killed, throttled and refused, at requests drawn by a seed.

Each process is one: what saves and dies, and the next one, which restores and saves. Saved are a
variable, which tfckpt writes, and an iterator, which TensorFlow writes and tfckpt uploads.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from zoo import s3_server
from zoo.forkserver import ForkServer, Outcome
from zoo.s3_server import BUCKET, FAIL, FAIL_DONE, FAIL_ON, KILLS, THROTTLE, S3Server

import tfckpt

if TYPE_CHECKING:
    from collections.abc import Iterator

for package in ("s3fs", "moto.server"):
    pytest.importorskip(package, reason="needs s3fs and moto; setup.cfg has them in `test`")

KEEP = 2
SEED = 20250131


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with S3Server() as server:
        yield server


@pytest.fixture(scope="module")
def forks(server: S3Server) -> Iterator[ForkServer]:
    with ForkServer(server.environment) as forks:
        yield forks


class Life:
    """Processes that save into one directory, one after the other, and what they were told."""

    def __init__(self, server: S3Server, forks: ForkServer, log: Path, name: str) -> None:
        self.server, self.forks, self.log = server, forks, log / name
        self.name = name
        self.log.touch()

    def saves(self, n: int = 0, strike: str = "") -> Outcome:
        """Three, of which the last deletes the first; the n-th request is struck."""
        tried = len(self.log.read_text().splitlines())
        order = [self.server.url, n, strike]
        arguments = self.name, str(self.log), tried, order
        return self.forks.run((__file__, "saves"), *arguments, timeout=300)

    def judge(self) -> None:
        """A new process finds what it must, and saves; nothing is left over."""
        told = [json.loads(line) for line in self.log.read_text().splitlines()]
        ended = self.forks.run((__file__, "next_process"), self.name, told, timeout=300)
        here = ended.result()
        assert self.server.objects(self.name) == sorted(here)
        assert "Uploads" not in self.server.client.list_multipart_uploads(Bucket=BUCKET)


def _checkpoint() -> tuple[Any, Any, tfckpt.Checkpoint]:
    import tensorflow as tf

    with contextlib.suppress(ImportError):
        import tensorflow_io  # noqa: F401  where it is installed, TensorFlow's own S3 is tested

    value, iterator = tf.Variable(tf.zeros([50])), iter(tf.data.Dataset.range(1000))
    return value, iterator, tfckpt.Checkpoint(value=value, iterator=iterator)


def saves(name: str, log: str, tried: int, order: list[Any]) -> None:
    """In a process of its own: what is tried is noted, and again when the save has returned."""
    value, iterator, checkpoint = _checkpoint()
    url, n, strike = order
    body = json.dumps({"n": n, "strike": strike, "pid": os.getpid()} if strike else {})
    urllib.request.urlopen(url + s3_server.CONTROL, body.encode()).close()
    refused = contextlib.suppress(tfckpt.CheckpointError, OSError)  # it cannot even begin
    with Path(log).open("a", buffering=1) as file, refused:
        manager = tfckpt.CheckpointManager(checkpoint, f"s3://{BUCKET}/{name}", KEEP)
        manager.restore_or_initialize()
        for number in range(tried + 1, tried + KEEP + 2):
            value.assign(np.full(50, number, np.float32))
            while int(next(iterator)) < number:
                pass
            file.write(json.dumps([number, "tried"]) + "\n")
            try:
                path = manager.save()
            except tfckpt.SaveError as error:
                left = "partial files could not be removed either" in str(error)
                file.write(json.dumps([number, "unknown" if left else "failed"]) + "\n")
            else:
                file.write(json.dumps([number, path]) + "\n")


def next_process(name: str, told: list[tuple[int, str]]) -> list[str]:
    """In a process of its own: restore, read what was acknowledged, save; what must be there."""
    paths = {number: text for number, text in told if text.startswith("s3://")}
    failed = {number for number, text in told if text == "failed"}
    value, iterator, checkpoint = _checkpoint()
    manager = tfckpt.CheckpointManager(checkpoint, f"s3://{BUCKET}/{name}", KEEP)
    restored = manager.restore_or_initialize()
    (found,) = {int(each) for each in value.numpy()}
    newest = max(paths, default=0)
    later = {number for number, _ in told if number > newest} - failed
    assert found in {newest, *later}, (found, told)
    assert int(next(iterator)) == (found + 1 if restored else 0)
    # One whose save did not return may be there, too, and an older one gone for it.
    numbers = {
        int(path.rpartition("-")[2]): path for path in (*manager.checkpoints, *paths.values())
    }
    for _, path in sorted(numbers.items())[-KEEP:]:
        other, _, again = _checkpoint()
        again.read(path)
        assert paths.get(int(other.numpy()[0]), path) == path
    path = manager.save()
    assert path not in paths.values()
    bases = [each.rpartition("/")[2] for each in manager.checkpoints]
    assert path.endswith(bases[-1])
    assert len(bases) <= KEEP
    ends = (".data-00000-of-00002", ".data-00001-of-00002", ".index", ".tfckpt.json")
    return ["checkpoint", *(base + end for base in bases for end in ends)]


@pytest.fixture(scope="module")
def requests(server: S3Server, forks: ForkServer, tmp_path_factory: pytest.TempPathFactory) -> int:
    """The number of requests of a process that nothing happens to."""
    life = Life(server, forks, tmp_path_factory.mktemp("log"), "undisturbed")
    life.saves().result()
    asked = server.calm()
    life.judge()
    assert len([each for each in asked if each.startswith("PUT")]) > 3 * 5
    return len(asked)


def test_what_is_saved_there_is_restored_and_a_kill_loses_nothing(
    server: S3Server, forks: ForkServer, requests: int, tmp_path: Path
) -> None:
    strike = random.Random(SEED).choice(KILLS)
    life = Life(server, forks, tmp_path, "killed")
    life.saves().result()
    ended = life.saves(requests // 2, strike)
    assert ended.signal == 9, ended
    server.calm()
    life.judge()


@pytest.mark.long
@pytest.mark.parametrize("ten", range(5))
def test_fifty_kills_lose_nothing_and_leave_nothing(
    server: S3Server, forks: ForkServer, requests: int, tmp_path: Path, ten: int
) -> None:
    draw = random.Random(SEED + ten)
    killed = 0
    for case in range(10):
        life = Life(server, forks, tmp_path, f"killed-{ten}-{case}")
        for _ in range(draw.randint(1, 2)):  # the second time in a directory that has been saved to
            killed += life.saves(draw.randint(1, requests), draw.choice(KILLS)).signal == 9
            server.calm()
        life.judge()
    print(f"{killed} processes killed at a request, of {requests} each; nothing lost or left")


@pytest.mark.long
@pytest.mark.parametrize("strike", [FAIL, FAIL_DONE, FAIL_ON])
def test_refused_requests_lose_nothing_and_leave_nothing(
    server: S3Server, forks: ForkServer, requests: int, tmp_path: Path, strike: str
) -> None:
    draw = random.Random(SEED)
    for case, n in enumerate(draw.sample(range(1, requests + 1), 15)):
        life = Life(server, forks, tmp_path, f"{strike[-4:]}-{case}".replace(" ", ""))
        life.saves(n, strike).result()
        server.calm()
        life.judge()
    print(f"15 cases of {requests} requests: {strike}; nothing lost or left")


@pytest.mark.long
def test_a_store_that_is_busy_for_a_while_costs_time_alone(
    server: S3Server, forks: ForkServer, requests: int, tmp_path: Path
) -> None:
    draw = random.Random(SEED)
    for case, n in enumerate(draw.sample(range(1, requests + 1), 10)):
        life = Life(server, forks, tmp_path, f"throttled-{case}")
        life.saves(n, THROTTLE).result()
        server.calm()
        told = [json.loads(line) for line in life.log.read_text().splitlines()]
        assert len([text for _, text in told if text.startswith("s3://")]) == 3, (n, told)
        life.judge()


# Stands for a machine without TensorFlow, which an import then does not find.
_WITHOUT_TENSORFLOW = """
import sys
sys.modules["tensorflow"] = None
from tfckpt.cli.main import main
for arguments in sys.argv[1:]:
    status = main(["tfckpt", *arguments.split()])
    print("status", status, flush=True)
"""


def test_the_command_line_reads_and_prunes_there_without_tensorflow(
    server: S3Server, forks: ForkServer, tmp_path: Path
) -> None:
    Life(server, forks, tmp_path, "commands").saves().result()
    run = f"s3://{BUCKET}/commands"
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
        env={**os.environ, **server.environment},
    )
    listed, shown, verified, differing, _, left, *_ = done.stdout.split("status ")
    assert [line.split()[0] for line in listed.splitlines()[1:]] == ["ckpt-3", "ckpt-2"]
    assert "value" in shown
    assert verified.count("ok") == 2
    assert "different value" in differing
    assert [line.split()[0] for line in left.splitlines()[2:]] == ["ckpt-3"]
    assert "there is no bucket or container 'no-such-bucket'" in done.stderr
    assert "'tfckpt[remote]'" in done.stderr
    assert {name.partition(".")[0] for name in server.objects("commands")} == {
        "checkpoint",
        "ckpt-3",
    }
