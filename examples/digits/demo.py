"""Kill a training, resume it, then fine-tune what it learned: the whole of it in about a minute.

Everything is written below a temporary directory, which is gone afterwards.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
SUFFIX = ".tfckpt.json"
# TensorFlow's own remarks about the machine would hide what the demo says.
QUIET = {"TF_CPP_MIN_LOG_LEVEL": "3", "TF_ENABLE_ONEDNN_OPTS": "0"}


def newest_record(run_dir: Path) -> dict[str, Any]:
    """What the newest committed checkpoint says about itself; {} where there is none."""
    records = (run_dir / "checkpoints").glob(f"ckpt-*{SUFFIX}")
    newest = max(
        records, key=lambda path: int(path.name[len("ckpt-") : -len(SUFFIX)]), default=None
    )
    found: dict[str, Any] = json.loads(newest.read_text(encoding="utf-8")) if newest else {}
    return found


def start_training(run_dir: Path) -> subprocess.Popen[bytes]:
    environment = {**os.environ, **QUIET, "RUN_DIR": str(run_dir)}
    return subprocess.Popen([sys.executable, str(HERE / "train.py")], env=environment)  # noqa: S603


def kill_in_mid_training(run_dir: Path) -> dict[str, Any]:
    """Start the training, kill it after two epochs, and say what it had committed by then."""
    training = start_training(run_dir)
    while (newest_record(run_dir).get("epoch") or 0) < 2:
        assert training.poll() is None, "the training ended before it could be killed"
        time.sleep(0.02)
    training.kill()
    assert training.wait() < 0, "the training ended before it could be killed"
    return newest_record(run_dir)


def resume(run_dir: Path) -> dict[str, Any]:
    """Start the same training again, and return its summary."""
    assert start_training(run_dir).wait() == 0, "the training did not go through"
    summary: dict[str, Any] = json.loads((run_dir / "summary.json").read_text(encoding="utf-8"))
    return summary


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        run_dir = Path(directory)
        title("Train on eight classes, and kill the process (SIGKILL) in mid-training")
        last = kill_in_mid_training(run_dir)
        number, finished = last["number"], last["epoch"]
        print(f"killed; the newest commit is ckpt-{number}, {finished} epochs finished")

        title("Start the same command again")
        summary = resume(run_dir)
        epochs, steps = summary["epochs"], summary["steps"]
        name = Path(summary["restored"]).name
        print(f"restored {name}, trained to epoch {epochs[-1]}: {steps} steps in all")
        assert summary["restored"].endswith(f"/ckpt-{number}"), "not the newest commit"
        assert steps == summary["steps_of_all_epochs"], "steps were repeated, or left out"
        assert epochs == list(range(1, epochs[-1] + 1)), "the history is not whole"
        assert epochs[-1] == newest_record(run_dir)["epoch"], "the last epoch was not saved"

        title("Learn ten classes from a few examples of each")
        os.environ |= {**QUIET, "PRETRAINED": str(run_dir / "checkpoints")}
        from finetune import EXAMPLES_PER_CLASS, finetune

        with_restore, report = finetune(restore=True)
        without, _ = finetune(restore=False)
        print(report)
        print(f"\naccuracy after {EXAMPLES_PER_CLASS} examples per class")
        print(f"  with the pre-trained layers     {with_restore:.1%}")
        print(f"  the same training without them  {without:.1%}")
        assert with_restore > without, "the restore did not help"
    title("All as it should be")


def title(text: str) -> None:
    print(f"\n=== {text} ===\n", flush=True)


if __name__ == "__main__":
    main()
