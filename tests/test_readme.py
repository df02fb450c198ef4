"""The answer that the README shows is the one that the command gives today."""

from pathlib import Path

from click.testing import CliRunner

from batchline.cli import cli

README = Path(__file__).resolve().parents[1] / "README.md"


def test_the_first_answer_is_todays():
    text = README.read_text()
    start = text.index("    batchline curve")
    command, _, rest = text[start:].partition("\n")
    shown = rest[: rest.index("\nA server decodes")]
    said = CliRunner().invoke(cli, command.split()[1:]).stdout
    today = "\n".join(f"    {line}".rstrip() for line in said.strip("\n").splitlines())
    assert shown.strip("\n") == today, f"The README's answer is of another day. Put this there:\n{today}"
