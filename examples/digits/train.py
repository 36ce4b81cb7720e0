"""Train on eight classes, and go on where a run that was killed left off.

``RUN_DIR=/tmp/run python examples/digits/train.py`` starts; the same line again resumes.
"""

from __future__ import annotations

import json
import math
import os
from pathlib import Path

import keras
from model import CONFIGS, build_model, data

import tfckpt

EPOCHS = 10
BATCH = 32
CLASSES = 8


def main() -> None:
    keras.utils.set_random_seed(0)
    (images, labels), _ = data(CLASSES)
    model = build_model(CLASSES)
    run = tfckpt.from_config(CONFIGS / "pretrain.yaml", model=model)
    report = run.restore()
    if report.restored:
        print(report)
    history = model.fit(
        images,
        labels,
        batch_size=BATCH,
        epochs=EPOCHS,
        verbose=2,
        callbacks=[run.callback(verbose=0)],
    )
    summary = {
        "restored": report.path,
        "epochs": [epoch + 1 for epoch in history.epoch],
        "steps": int(model.optimizer.iterations.numpy()),
        "steps_of_all_epochs": EPOCHS * math.ceil(len(images) / BATCH),
    }
    Path(os.environ["RUN_DIR"], "summary.json").write_text(json.dumps(summary), encoding="utf-8")


if __name__ == "__main__":
    main()
