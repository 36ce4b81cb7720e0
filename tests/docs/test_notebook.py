"""examples/notebook.ipynb, run from top to bottom in an empty directory, as a reader does."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

PAGE = Path(__file__).resolve().parents[2] / "examples" / "notebook.ipynb"


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Any:
    notebook = nbformat.read(PAGE, as_version=4)
    there = tmp_path_factory.mktemp("notebook")
    client = NotebookClient(
        notebook, timeout=300, resources={"metadata": {"path": str(there)}}, allow_errors=False
    )
    client.execute(env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"})
    return notebook


def printed(notebook: Any) -> str:
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    return "".join(output.text for output in outputs if output.get("name") == "stdout")


def html(notebook: Any) -> list[str]:
    shown = (output for cell in notebook.cells for output in cell.get("outputs", ()))
    return [one.data["text/html"] for one in shown if "text/html" in one.get("data", {})]


def test_it_is_kept_without_outputs() -> None:
    notebook = nbformat.read(PAGE, as_version=4)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.outputs for cell in code] == [[]] * len(code)
    assert {cell.execution_count for cell in code} == {None}


def test_the_second_fit_goes_on_where_the_first_ended(ran: Any) -> None:
    text = printed(ran)
    assert re.search(r"^restored runs/notebook/ckpt-3 \(epoch 3\)", text, re.MULTILINE)
    assert text.count("saved ckpt-") == 5


def test_what_it_looks_at_is_shown_as_tables(ran: Any) -> None:
    listed, contents, changed, plan, report = html(ran)
    assert listed.count("would be deleted") == 2
    assert "model/hidden/kernel" in contents
    assert "relative" in changed
    assert "refused" in plan
    assert "model/body/**" in plan
    assert re.search("RENAMED.*model/body/kernel", report, re.DOTALL)


def test_its_config_is_the_one_in_configs() -> None:
    config = (PAGE.parents[1] / "configs" / "notebook.yaml").read_text(encoding="utf-8")
    notebook = nbformat.read(PAGE, as_version=4)
    assert any(f'"""\n{config}"""' in cell.source for cell in notebook.cells)
