"""The answer that the README shows is the one that the command gives today."""

import re
from pathlib import Path

from click.testing import CliRunner

from batchline import published
from batchline.cli import cli

README = Path(__file__).resolve().parents[1] / "README.md"
LAUNCH = README.parent / "docs" / "launch.md"


def test_the_first_answer_is_todays():
    text = README.read_text()
    start = text.index("    batchline curve")
    command, _, rest = text[start:].partition("\n")
    shown = rest[: rest.index("\nA server decodes")]
    said = CliRunner().invoke(cli, command.split()[1:]).stdout
    today = "\n".join(f"    {line}".rstrip() for line in said.strip("\n").splitlines())
    assert shown.strip("\n") == today, f"The README's answer is of another day. Put this there:\n{today}"


def test_the_errors_are_those_of_the_published_table():
    """Mean and median of TPOT and TTFT where the cluster, the lengths and the layout are new, in that order."""
    text = README.read_text()
    told = re.findall(r"(\d+)%", text[text.index("it had never seen together") : text.index("has every split")])
    found = {row["left_out"]: row for row in published.load()["splits"]}
    wanted = [
        found[left_out][of][figure]
        for left_out in ("cluster", "series", "deployment")
        for of in ("tpot", "ttft")
        for figure in ("mape", "median")
    ]
    assert [int(one) for one in told] == [round(100 * one) for one in wanted]


def test_the_launch_command_that_is_shown_prints_what_is_shown():
    """Flags and reasons, line by line; the numbers are of the day, and so is the layout of columns."""

    def flags(lines):
        return [re.sub(r"\d+", "N", " ".join(line.split())) for line in lines if line.strip()]

    text = LAUNCH.read_text()
    command = re.search(r"^    batchline (launch .*--no-disaggregation)$", text, re.MULTILINE)[1]
    shown = text[text.index("    flags=(") : text.index("    exec vllm")]
    said = CliRunner().invoke(cli, command.split()).stdout
    assert flags(shown.strip().splitlines()) == flags(
        said[said.index("flags=(") : said.index("exec vllm")].splitlines()
    )
