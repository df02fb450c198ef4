"""Every name in the JSON of every command stands in docs/nomenclature.md."""

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from batchline.cli import cli

PAGE = Path(__file__).resolve().parents[1] / "docs" / "nomenclature.md"

# What hangs below these is called by names of the catalogue, of the engine or of the user, not of ours.
BY_NAME = {"best_of", "refused", "secrets", "flops", "config", "unidentified", "waits", "value of a property"}

ASKED = {
    "curve": "curve llama-3.1-8b --on h100 --isl 1k --osl 1k",
    "memory": "memory qwen3-32b --on h200",
    "plan": "plan llama-3.1-8b --isl 1k --osl 256 --rate 2 --on h100",
    "price": "price llama-3.1-8b --on h100 --isl 1k --osl 256",
    "launch": "launch llama-3.1-8b --on h100 --isl 1k --osl 256 --rate 2",
    "simulate": "simulate llama-3.1-8b --on h100 --isl 1k --osl 256 --rate 2 --requests 50 --ttft p95:2s",
    "measure": "measure {steps}",
    "calibrate": "calibrate {steps} --model llama-3.1-8b --on h100",
    "validate": "validate {served}",
    "list models": "list models llama-3.1-8b",
    "list accelerators": "list accelerators h100",
    "list prices": "list prices h100",
    "show a model": "show deepseek-v3",
    "show an accelerator": "show h100",
}
STEPS = "batch,context,t_step_s\n1,2304,0.0077\n8,2304,0.0085\n16,2304,0.0095\n32,2304,0.0114\n64,2304,0.0152\n"
SERVED = (
    "model,hw,engine,isl,osl,batch_or_concurrency,precision_w,decode_step_ms,ttft_ms\n"
    "llama-3.1-8b,h100,vllm,1024,256,16,bf16,10.1,120\n"
)


def names(value, inside=""):
    if isinstance(value, dict):
        for name, item in value.items():
            if inside not in BY_NAME:
                yield name
                yield from names(item, "value of a property" if inside == "by" else name)
            else:
                yield from names(item)
    elif isinstance(value, list):
        for item in value:
            yield from names(item, inside)


@pytest.mark.parametrize("asked", list(ASKED))
def test_every_name_of_the_json_is_explained(asked, tmp_path):
    files = {"steps": tmp_path / "steps.csv", "served": tmp_path / "served.csv"}
    files["steps"].write_text(STEPS)
    files["served"].write_text(SERVED)
    result = CliRunner().invoke(cli, [*(word.format(**files) for word in ASKED[asked].split()), "--json"])
    assert result.exit_code == 0, result.output
    explained = {part for name in re.findall(r"`([\w.]+)`", PAGE.read_text()) for part in name.split(".")}
    assert set(names(json.loads(result.stdout))) - explained == set()
