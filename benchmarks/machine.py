"""Where it ran: processor, memory, file systems, and the versions of all that was measured."""

from __future__ import annotations

import datetime
import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from benchmarks.measure import Settings

PACKAGES = (
    "tfckpt",
    "tensorflow",
    "keras",
    "numpy",
    "google-crc32c",
    "safetensors",
    "orbax-checkpoint",
    "jax",
    "torch",
)


def describe(settings: Settings) -> dict[str, Any]:
    """What a reader of the figures wants to know, by its name in the report."""
    places = settings.places
    return {
        "sizes": "small, by --quick: they say nothing about speed" if settings.quick else "full",
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "commit": _commit(),
        "processor": f"{_processor()}, {os.cpu_count()} cores",
        "load before": ", ".join(f"{load:.1f}" for load in os.getloadavg()),
        "memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.1f} GiB",
        "file systems": ", ".join(f"{name}: {_file_system(path)}" for name, path in places.items()),
        "system": f"{platform.system()} {platform.release()}",
        "Python": platform.python_version(),
        **{package: _version(package) for package in PACKAGES},
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.machine()


def _file_system(path: str) -> str:
    """The type of the file system that a path is on: of the longest mount point above it."""
    try:
        mounts = [line.split()[1:3] for line in Path("/proc/mounts").read_text().splitlines()]
    except OSError:
        return "unknown"
    place = Path(path).resolve()
    above = [(len(point), kind) for point, kind in mounts if place.is_relative_to(point)]
    return max(above)[1] if above else "unknown"


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def _commit() -> str:
    """The commit that is measured; ``+`` where files differ from it."""
    here = Path(__file__).parent

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(here), *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    try:
        changed = git("status", "--porcelain", "--", "../tfckpt", ".", ":!results")
        return git("rev-parse", "--short", "HEAD") + ("+" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
