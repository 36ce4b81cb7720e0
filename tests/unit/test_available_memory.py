"""The least of what the machine, the control groups and the limits of a process leave."""

from __future__ import annotations

import resource
from typing import TYPE_CHECKING

import pytest

from tfckpt.live.io.available_memory import available_memory

if TYPE_CHECKING:
    from pathlib import Path

MIB = 1 << 20


@pytest.fixture
def system(tmp_path: Path) -> Path:
    """A Linux with 8 GiB available, and a process of no control group."""
    write(tmp_path / "proc/meminfo", "MemTotal: 16777216 kB\nMemAvailable:    8388608 kB\n")
    write(tmp_path / "proc/self/cgroup", "")
    write(
        tmp_path / "proc/self/status", "Name:\tpython\nVmSize:\t 1048576 kB\nVmData:\t 524288 kB\n"
    )
    return tmp_path


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def group(system: Path, folder: str, **files: object) -> None:
    for name, content in files.items():
        write(system / "sys/fs/cgroup" / folder / f"memory.{name}", f"{content}\n")


def test_what_the_machine_has(system: Path) -> None:
    assert available_memory(str(system)) == 8192 * MIB


def test_a_system_that_does_not_say(tmp_path: Path) -> None:
    assert available_memory(str(tmp_path)) is None


def test_a_container_with_version_2(system: Path) -> None:
    write(system / "proc/self/cgroup", "0::/job/step\n")
    group(
        system, "job", max=1024 * MIB, current=900 * MIB, stat=f"anon 1\ninactive_file {76 * MIB}"
    )
    group(system, "job/step", max="max", current=5)
    assert available_memory(str(system)) == (1024 - 900 + 76) * MIB


def test_a_container_that_sees_its_own_group_alone(system: Path) -> None:
    write(system / "proc/self/cgroup", "0::/docker/0123456789abcdef\n")
    group(system, "", max=512 * MIB, current=12 * MIB)
    assert available_memory(str(system)) == 500 * MIB


def test_version_1(system: Path) -> None:
    write(system / "proc/self/cgroup", "5:cpu:/a\n4:memory:/slurm/job\n0::/\n")
    group(
        system,
        "memory/slurm/job",
        limit_in_bytes=256 * MIB,
        usage_in_bytes=200 * MIB,
        stat=f"inactive_file 0\ntotal_inactive_file {4 * MIB}",
    )
    group(system, "memory", limit_in_bytes=9223372036854771712, usage_in_bytes=0)
    assert available_memory(str(system)) == 60 * MIB


def test_a_group_over_its_limit_leaves_nothing(system: Path) -> None:
    write(system / "proc/self/cgroup", "0::/\n")
    group(system, "", max=MIB, current=2 * MIB)
    assert available_memory(str(system)) == 0


@pytest.mark.parametrize(
    ("kind", "left"), [(resource.RLIMIT_AS, 1024), (resource.RLIMIT_DATA, 1536)]
)
def test_the_limits_of_the_process(
    kind: int, left: int, system: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unlimited = resource.RLIM_INFINITY
    limits = {kind: (2048 * MIB, unlimited)}
    monkeypatch.setattr(resource, "getrlimit", lambda of: limits.get(of, (unlimited, unlimited)))
    assert available_memory(str(system)) == left * MIB
