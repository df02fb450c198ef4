"""docs/predict.md: its commands run, its Python answers what it says."""

import doctest
import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from batchline.cli import cli

PAGE = Path(__file__).parents[1] / "docs" / "predict.md"
COMMANDS = re.findall(r"^    batchline (.+)$", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
OPTIONS = sorted(set(re.findall(r"`(--[a-z-]+ [^`]+)`", PAGE.read_text(encoding="utf-8"))))
TABLE = """model,hw,engine,isl,osl,batch_or_concurrency,decode_step_ms,ttft_ms
llama-3.1-8b,h100,vllm,1024,256,16,9.0,60
"""


@pytest.mark.parametrize("command", COMMANDS)
def test_commands(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("served.csv").write_text(TABLE)
    ran = CliRunner().invoke(cli, shlex.split(command))
    assert ran.exit_code == 0, ran.output


@pytest.mark.parametrize("option", OPTIONS)
def test_options(option):
    arguments = shlex.split(option)
    if arguments[1] in ("poisson", "even", "cv:2"):
        arguments += ["--rate", "1/s"]
    ran = CliRunner().invoke(cli, ["curve", "llama-3.1-8b", "--on", "h100", "--isl", "1k", "--osl", "128", *arguments])
    assert ran.exit_code == 0, ran.output


def test_python():
    assert doctest.testfile(str(PAGE), module_relative=False).failed == 0
