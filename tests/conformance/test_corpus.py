"""Real checkpoints that other people wrote: read here as TensorFlow reads them."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from zoo.corpus import CORPUS, ITEMS, PROJECT, digest, expected_of, prefix_of

from tfckpt.errors import CheckpointError, DamagedCheckpointError
from tfckpt.stored.bundles.bundle import Bundle

if TYPE_CHECKING:
    from pathlib import Path

OTHER_FORMATS = ("tf1_saver_v1", "h5", "keras_v3")
BUNDLES = [name for name, item in ITEMS.items() if item["kind"] not in OTHER_FORMATS]
NOT_BUNDLES = [name for name, item in ITEMS.items() if item["kind"] in OTHER_FORMATS]


@pytest.fixture(autouse=True)
def _needs(corpus: Path) -> None:
    """Skips, saying so, where the corpus is absent."""


def test_the_corpus_is_whole() -> None:
    assert len(BUNDLES) >= 36
    assert len(NOT_BUNDLES) >= 4


@pytest.mark.parametrize("name", BUNDLES)
def test_a_bundle_reads_as_tensorflow_reads_it(name: str) -> None:
    expected = expected_of(name)
    absent = {f"{CORPUS / name}/{file}" for file in ITEMS[name]["absent_files"]}
    with Bundle.open(prefix_of(name)) as bundle:
        assert set(bundle.missing_files) == absent
        if ITEMS[name]["tf_lists"]:
            assert {key: (e.dtype, list(e.shape)) for key, e in bundle.entries.items()} == {
                key: (e["dtype"], e["shape"]) for key, e in expected.items()
            }
        for key, entry in bundle.entries.items():
            want = expected.get(key, {"error": "TensorFlow does not list it"})
            if "error" in want:
                with pytest.raises(DamagedCheckpointError, match="missing") as caught:
                    bundle.read(key)
                assert caught.value.path in absent
                assert caught.value.name == key
            else:
                assert digest(bundle.read(key), entry.dtype) == want["sha256"], key
        if absent:
            with pytest.raises(DamagedCheckpointError, match="missing"):
                bundle.verify(bundle.entries)
        else:
            bundle.verify(bundle.entries)


@pytest.mark.parametrize("name", NOT_BUNDLES)
def test_another_format_is_no_bundle(name: str) -> None:
    for file in ITEMS[name]["files"]:
        with pytest.raises(CheckpointError) as caught:
            Bundle.open(str(CORPUS / name / file))
        assert caught.value.path == str(CORPUS / name / file)


def test_the_whole_corpus_is_read_without_tensorflow() -> None:
    code = (
        "import sys; from tfckpt.stored.bundles.bundle import Bundle\n"
        "for prefix in sys.argv[1:]:\n"
        "    bundle = Bundle.open(prefix)\n"
        "    if not bundle.missing_files:\n"
        "        for key in bundle.entries: bundle.read(key)\n"
        "print('tensorflow' in sys.modules)\n"
    )
    out = subprocess.run(
        [sys.executable, "-c", code, *map(prefix_of, BUNDLES)],
        capture_output=True,
        text=True,
        check=True,
        cwd=PROJECT,
    )
    assert out.stdout == "False\n"
