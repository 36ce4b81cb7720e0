"""Draw docs/pictures/report.png: the page of a run, as `tfckpt report DIR --html` writes it.

`python docs/pictures/draw.py` trains the model of examples/digits for a minute, writes its page,
and takes a picture of it with the Chromium that selenium finds, or that `CHROMIUM` names.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
PROJECT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(PROJECT / "examples" / "digits"))

import keras  # noqa: E402
from model import build_model, data  # noqa: E402  (of examples/digits)
from selenium import webdriver  # noqa: E402
from selenium.webdriver.common.action_chains import ActionChains  # noqa: E402
from selenium.webdriver.common.by import By  # noqa: E402

import tfckpt  # noqa: E402

EPOCHS = 30
RATE = 4e-3  # so high that the validation loss has its least value before the end
KEEP = [
    {"latest": 3},
    {"best": 2, "monitor": "val_loss", "mode": "min"},
    {"every_n_steps": 200},
]
SIZE = {"width": 1200, "height": 900, "deviceScaleFactor": 1, "mobile": False}


def train(directory: Path) -> None:
    """Train, keeping every checkpoint, so that the page has something to say about each."""
    keras.utils.set_random_seed(1)
    training, validation = data(10)
    model = build_model(10)
    model.optimizer.learning_rate.assign(RATE)
    config = {
        "version": 1,
        "manager": {
            "directory": str(directory),
            "save": {"every_epochs": 1},
            "keep": [{"latest": EPOCHS}, KEEP[1]],
        },
    }
    run = tfckpt.from_config(config, model=model)
    model.fit(
        *training,
        batch_size=64,
        epochs=EPOCHS,
        validation_data=validation,
        verbose=0,
        callbacks=[run.callback(verbose=0)],
    )


def photograph(page: Path, picture: Path) -> None:
    """The top of the page, as a browser shows it while the mouse is on the best checkpoint."""
    options = webdriver.ChromeOptions()
    options.binary_location = os.environ.get("CHROMIUM", "")
    for argument in ("--headless=new", "--no-sandbox", "--hide-scrollbars"):
        options.add_argument(argument)
    with webdriver.Chrome(options=options) as browser:
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", SIZE)
        browser.get(page.as_uri())
        best = browser.find_element(By.CSS_SELECTOR, ".mark.best")
        ActionChains(browser).move_to_element(best).perform()
        browser.save_screenshot(str(picture))


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        run = Path(directory, "runs", "digits")
        train(run)
        page = Path(directory, "page.html")
        os.chdir(directory)  # the page names the run as a person would
        tfckpt.report_page("runs/digits", html=page, keep=KEEP)
        picture = Path(__file__).with_name("report.png")
        photograph(page, picture)
    print(f"{picture}: {picture.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
