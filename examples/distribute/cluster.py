"""Several processes on this machine in the place of several machines.

A scheduler starts one process on each machine and says in ``TF_CONFIG`` which task it is. Here they
are forked from one that has imported TensorFlow and not used it yet, which saves its import.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import socket
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def run(tasks: Mapping[str, int], function: Callable[..., None], *arguments: Any) -> list[int]:
    """Run a function in each task of a cluster; their exit codes, the first task's first.

    Args:
        tasks: how many of each job, ``{"worker": 2}``.
        function: takes the arguments.
        arguments: for all of them.
    """
    cluster = {job: [f"127.0.0.1:{_port()}" for _ in range(n)] for job, n in tasks.items()}
    processes = []
    for job, count in tasks.items():
        for index in range(count):
            os.environ["TF_CONFIG"] = json.dumps(
                {"cluster": cluster, "task": {"type": job, "index": index}}
            )
            fork = multiprocessing.get_context("fork")
            processes.append(fork.Process(target=function, args=arguments))
            processes[-1].start()
    first, *others = processes
    first.join()
    for process in others:
        process.join(30)
        process.terminate()  # a server that has nothing to end for
    return [process.exitcode or 0 for process in processes]


def _port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
