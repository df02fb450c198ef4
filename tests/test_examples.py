"""The example notebooks run, cell by cell, as they are: no Jupyter is needed for that."""

import ast
import json
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[1] / "examples"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))


def run(cell, names, file):
    """Run a cell; give what a notebook would show below it."""
    tree = ast.parse(cell)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, file, "exec"), names)  # noqa: S102
    return None if last is None else eval(compile(ast.Expression(last.value), file, "eval"), names)  # noqa: S307


@pytest.mark.parametrize("file", [pytest.param(file, id=file.stem) for file in NOTEBOOKS])
def test_a_notebook_runs(file, capsys):
    notebook = json.loads(file.read_text(encoding="utf-8"))
    assert notebook["nbformat"] == 4
    names = {"__name__": "__main__"}
    shown = []
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            assert not cell["outputs"], "notebooks are kept without outputs"
            shown.append(run("".join(cell["source"]), names, file.name))
    told = [value for value in shown if value is not None]
    assert len(told) >= 4
    assert any('<div class="batchline">' in value._repr_html_() for value in told if hasattr(value, "_repr_html_"))
    assert len(capsys.readouterr().out.splitlines()) >= 3


def test_there_are_two():
    assert len(NOTEBOOKS) >= 2
