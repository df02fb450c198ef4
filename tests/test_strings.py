"""The catalogue of what people read: both languages, the same fields, and no command that speaks past it."""

import ast
import copy
import os
import re
import string
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

import batchline
from batchline import prior, strings
from batchline.cli import _COMMANDS, cli, main
from batchline.errors import BatchlineError, UnknownNameError

SRC = Path(batchline.__file__).parent


def fields(text: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(text) if name}


def entries():
    for key in strings.keys():  # noqa: SIM118
        group, _, name = key.partition(".")
        yield key, strings._group(group)[name]


def test_every_text_has_every_language_with_the_same_fields():
    for key, entry in entries():
        assert set(entry) == set(strings.LANGUAGES), key
        assert fields(entry["en"]) == fields(entry["ko"]), key


# A particle's form follows the last sound of the word before it, which a field does not tell.
PARTICLES = re.compile(r"\}(은|는|이|가|을|를|와|과|으로|로|이나|나|이며|라|이라)(?=[\s.,:;)]|$)")


def test_no_particle_follows_a_field():
    assert [key for key, entry in entries() if PARTICLES.search(entry["ko"])] == []


def test_a_sentence_is_an_english_string_that_can_be_told_and_copied():
    inner = strings.Sentence("calibrate.at_batch", batch="64")
    said = strings.Sentence("calibrate.advice_none", at=inner, now="7%")
    assert said == "No further point would do much: the prediction at batch 64 is known to 7% (90%)."
    assert "배치 64에서" in said.told("ko")
    for again in (copy.copy(said), copy.deepcopy(said)):
        assert again == said
        assert again.told("ko") == said.told("ko")
    assert strings.told("fp8", "ko") == "fp8"


def test_every_level_of_the_prior_has_a_name():
    assert {f"prior.level_{kind}" for kind in prior.GENERAL} <= set(strings.keys())


def test_texts():
    assert strings.text("chart.knee", batch="12") == "knee 12"
    assert strings.text("chart.knee", "ko", batch="12") == "꺾임점 12"
    with pytest.raises(UnknownNameError, match=r"no text 'chart\.kne'.*chart\.knee"):
        strings.text("chart.kne")
    with pytest.raises(UnknownNameError, match="no text 'nothing'"):
        strings.text("nothing")
    with pytest.raises(UnknownNameError, match="no language 'fr'"):
        strings.text("chart.knee", "fr", batch="12")


def used(path):
    """Keys that a file asks for, where they are written out."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            name = getattr(node.func, "id", getattr(node.func, "attr", ""))
            key = node.args[0].value
            if name in {"say", "text"} and isinstance(key, str) and re.fullmatch(r"\w+\.\w+", key):
                yield key


@pytest.mark.parametrize("path", [pytest.param(p, id=p.stem) for p in sorted((SRC / "cli").glob("*.py"))])
def test_a_command_asks_only_for_texts_that_are_there(path):
    assert set(used(path)) <= set(strings.keys())


STYLES = {"bold green", "bold red", "bold yellow"}


def spoken(path):
    """Literals of two words or more that a command would print: all but docstrings, help, exceptions and formulas."""
    tree = ast.parse(path.read_text())
    silent = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Raise) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):
            silent.append(node)
        elif isinstance(node, ast.Call):
            silent += [keyword for keyword in node.keywords if keyword.arg == "help"]
        elif isinstance(node, ast.JoinedStr | ast.Constant) and re.search(r" = | / ", ast.unparse(node)):
            silent.append(node)
    skipped = {inner for node in silent for inner in ast.walk(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in skipped:
            yield from re.findall(r"[A-Za-z]+,? (?!dp|pp|tp|ep)[a-z]{2,}.*", "" if node.value in STYLES else node.value)


@pytest.mark.parametrize("path", [pytest.param(p, id=p.stem) for p in sorted((SRC / "cli").glob("*.py"))])
def test_a_command_prints_no_sentence_past_the_catalogue(path):
    assert not list(spoken(path))


def test_the_language_is_asked_for_anywhere_on_the_line_or_in_the_environment():
    def said(*args, **env):
        return CliRunner().invoke(cli, list(args), env=env).stdout

    korean = said("--language", "ko", "--help")
    assert "어떤 배치로 돌릴지" in korean
    assert said("--help", "--language", "ko") == korean
    assert said("curve", "--help", "--language", "ko") == said("--language", "ko", "curve", "--help")
    assert said("--help", BATCHLINE_LANGUAGE="ko") == korean
    assert said("--help", BATCHLINE_LANGUAGE="", LC_ALL="", LC_MESSAGES="", LANG="ko_KR.UTF-8") == korean
    assert said("--help", BATCHLINE_LANGUAGE="", LC_ALL="fr_FR.UTF-8") == said("--help") != korean
    wrong = CliRunner().invoke(cli, ["list", "models", "--language", "fr"])
    assert wrong.exit_code == 2
    assert "'en', 'ko'" in wrong.stderr


COMMANDS = [*_COMMANDS, "list models", "list accelerators", "list prices"]


def options_of(words):
    command = cli
    for word in words.split():
        command = command.get_command(click.Context(command), word)
    return [one for one in command.params if isinstance(one, click.Option)]


def test_no_two_texts_of_help_are_the_same_in_english_alone():
    """Help is told in Korean by its English words: they must name one text."""
    korean = {}
    for key, said in strings.group("help", "en").items():
        korean.setdefault(said, set()).add(strings.text(f"help.{key}", "ko"))
    assert {said: several for said, several in korean.items() if len(several) > 1} == {}


@pytest.mark.parametrize("words", COMMANDS)
def test_help_speaks_korean(words):
    known = set(strings.group("help", "en").values())
    assert [one.name for one in options_of(words) if one.help not in known] == []
    english, korean = (
        CliRunner().invoke(cli, ["--language", language, *words.split(), "--help"]).stdout
        for language in strings.LANGUAGES
    )
    assert not re.search("[가-힣]", english)
    examples = re.findall(r"^  batchline .*$", english, re.MULTILINE)
    assert examples == re.findall(r"^  batchline .*$", korean, re.MULTILINE)
    for one in options_of(words):
        assert max(one.opts, key=len) in korean
    said = re.sub(r"^  batchline .*$|`[^`]*`", "", korean, flags=re.MULTILINE)
    assert not re.search(r"\b(the|of|is|are|and|with)\b", said), said


@pytest.mark.parametrize(
    "asked",
    [
        "curve llama-3.1-8b --on h100 --isl 1k --osl 1k --json",
        "curve llama-3.1-8b --on h100 --csv",
        "memory qwen3-32b --on h200 --json",
        "price llama-3.1-8b --on h100 --isl 1k --osl 256 --json",
        "launch llama-3.1-8b --on h100 --isl 1k --osl 256 --rate 2 --json",
        "simulate llama-3.1-8b --on h100 --isl 1k --osl 256 --rate 2 --requests 50 --json",
        "list prices h100 --csv",
        "show h100 --json",
    ],
)
def test_programs_read_the_same_in_every_language(asked):
    english, korean = (
        CliRunner().invoke(cli, [*asked.split(), "--language", language]).stdout for language in strings.LANGUAGES
    )
    assert english == korean
    assert english


@pytest.mark.parametrize(
    "asked",
    [
        "curve llama-3.1-8b --on h100",
        "curve llama-3.1-8b --on h100 --reading bound --within 0.01",
        "curve llama-3.1-8b --on h100 --explain",
        "curve llama-3.1-8b --on h100 --isl 1k --osl 1k",
        "memory qwen3-32b --on h200",
        "memory llama-3.1-70b --on h100 --weights fp8",
        "list models llama",
        "list accelerators h100",
        "list prices h100",
        "simulate llama-3.1-8b --on h100 --isl 1k --osl 256 --rate 2 --requests 50",
        "show llama-3.1-8b",
        "show h100",
        "plan llama-3.1-8b --isl 1k --osl 256 --rate 5/s --tpot 40ms --on l40s --max-devices 1 --worth",
        "plan llama-3.1-8b --isl 1k --osl 256 --users 50 --think 30s --tpot 40ms --on l40s --max-devices 2",
        "price llama-3.1-70b --on 4xh100 --weights fp8 --tpot 40ms --margin 0.3",
    ],
)
def test_a_command_speaks_korean(asked):
    """Every heading and sentence has Hangul; names, numbers, units, an engine's log and sources stay as they are."""
    english, korean = (
        CliRunner().invoke(cli, [*asked.split(), "--language", language]).stdout.splitlines()
        for language in strings.LANGUAGES
    )
    assert len(english) == len(korean)
    assert not any(re.search("[가-힣]", line) for line in english)
    same = [line for line in korean if line.strip() and line in english]
    assert not [
        line for line in same if re.search(r"[a-z]{3,} (a|the|of|is|are|at|to) [a-z]", line) and ": " not in line
    ]
    assert any(re.search("[가-힣]", line) for line in korean)


@pytest.mark.parametrize(
    "asked",
    [
        "curve lama-3.1-70b --on h100",
        "curve llama-3.1-8b --on h1000",
        "curve llama-3.1-8b --on h100 --weights fp7",
        "curve llama-3.1-405b --on h100",
        "curve llama-3.1-8b --on 3xh100",
        "curve llama-3.1-8b --on h100 --step-limit 1us",
        "curve llama-3.1-8b --on h100 --batch 0",
        "curve llama-3.1-8b --on h100 --context 8apples",
        "curve llama-3.1-8b --on h100 --price free",
        "curve llama-3.1-8b --on h100 --isl 1k",
        "curve llama-3.1-8b --on custom",
        "show h10",
    ],
)
def test_an_error_speaks_korean_and_english(asked):
    error = CliRunner().invoke(cli, asked.split()).exception
    assert isinstance(error, BatchlineError)
    assert strings.said(error, "en") == str(error)
    assert re.search("[가-힣]", strings.said(error, "ko"))
    assert not re.search(r"\b(the|is|of|or|Write|Use|Give)\b", strings.said(error, "ko"))


def test_an_error_is_announced_in_the_language_of_the_run():
    command = [sys.executable, "-m", "batchline", "curve", "lama", "--on", "h100", "--language", "ko"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=dict(os.environ))
    assert done.returncode == 2
    assert done.stderr.startswith("오류: ")


def error_names():
    """Exceptions that Batchline raises, and those that are made of them."""
    found, before = {"BatchlineError"}, 0
    classes = [
        node
        for path in SRC.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef)
    ]
    while len(found) > before:
        before = len(found)
        found |= {node.name for node in classes if {ast.unparse(base).split(".")[-1] for base in node.bases} & found}
    return found


ERRORS = error_names()


def written(node):
    """Sentences that stand in an argument as plain text: two words or more, beside those that are told."""
    if isinstance(node, ast.Constant):
        if isinstance(node.value, str) and re.search(r"\w.* \w", node.value):
            yield node.value
    elif isinstance(node, ast.JoinedStr):
        words = "".join(part.value if isinstance(part, ast.Constant) else "{}" for part in node.values)
        if re.search("[A-Za-z]{2,}", words):
            yield words
    elif not isinstance(node, ast.Call):
        for inner in ast.iter_child_nodes(node):
            yield from written(inner)


@pytest.mark.parametrize("path", [pytest.param(p, id=str(p.relative_to(SRC))) for p in sorted(SRC.rglob("*.py"))])
def test_no_error_is_made_of_a_sentence_that_only_english_has(path):
    kinds = strings.group("error", "en")
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.Call):
            continue
        name = getattr(node.func, "id", getattr(node.func, "attr", ""))
        if name not in ERRORS:
            continue
        given = [*node.args, *(keyword.value for keyword in node.keywords)]
        if name == "UnknownNameError" and given and isinstance(given[0], ast.Constant):
            kind = given.pop(0).value
            assert f"kind_{re.sub('[^a-z]+', '_', kind.casefold())}" in kinds, (node.lineno, kind)
        assert [words for one in given for words in written(one)] == [], node.lineno


@pytest.mark.parametrize(
    ("asked", "files"),
    [
        ("plan q.toml", {"q.toml": "model = llama"}),
        ("plan q.toml", {"q.toml": 'model = "llama-3.1-8b"\nisll = 3\nosl = 4\n'}),
        ("plan q.toml", {"q.toml": 'model = "llama-3.1-8b"\n'}),
        ("plan missing.toml", {}),
        ("curve llama-3.1-8b --on mine.toml", {"mine.toml": 'memory = "80"\nspeed = 3\n'}),
        ("curve llama-3.1-8b --on mine.toml", {"mine.toml": "memory"}),
        ("curve llama-3.1-8b --on h100 --profile p.toml", {"p.toml": "schema = 9"}),
        ("curve x.gguf --on h100", {"x.gguf": "nothing"}),
        ("curve . --on h100", {"config.json": "{"}),
        ("simulate llama-3.1-8b --on h100 --isl 1k --osl 1k --rate 1 --workers 2", {}),
        ("simulate llama-3.1-8b --on h100 --isl 1k --osl 1k --rate 1 --sweep rate=0,1", {}),
        ("simulate llama-3.1-8b --on h100 --isl 1k --osl 1k --rate 1 --arrivals gamma:0", {}),
        ("simulate llama-3.1-8b --on h100 --trace t.csv", {"t.csv": "arrival_s,isl,osl\n0,10,5\n1,ten,5\n"}),
        ("simulate llama-3.1-8b --on h100 --trace t.csv", {"t.csv": "arrival_s,isl,osl\n5,10,5\n1,10,5\n"}),
        ("simulate llama-3.1-8b --on h100 --trace t.csv", {"t.csv": "arrival_s,isl,osl\n5,10\n"}),
        ("simulate llama-3.1-8b --on h100 --trace t.jsonl", {"t.jsonl": "[]\n"}),
        ("simulate llama-3.1-8b --on h100 --trace missing.csv", {}),
        ("validate t.csv", {"t.csv": "model,accelerator\n"}),
        ("validate t.csv", {"t.csv": "a,b\n1,2\n"}),
        ("measure t.json", {"t.json": '{"hello": 1}'}),
        ("measure metrics.txt metrics.txt t.json", {"metrics.txt": "vllm:x", "t.json": "{}"}),
        ("calibrate t.json --on h100 --model llama-3.1-8b", {"t.json": "[]"}),
        ("price llama-3.1-8b --on h100 --market a-model-of-tomorrow", {}),
    ],
)
def test_a_refusal_speaks_korean(asked, files, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    with pytest.raises(BatchlineError) as caught:
        CliRunner().invoke(cli, asked.split(), standalone_mode=False, catch_exceptions=False)
    for part in strings.said_parts(caught.value, "ko"):
        assert not part or re.search("[가-힣]", part), part


def test_a_group_alone_shows_its_help_and_nothing_else(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["batchline", "--language", "ko", "list"])
    with pytest.raises(SystemExit):
        main()
    said = capsys.readouterr().err
    assert said.startswith("사용법:")
    assert "오류" not in said


@pytest.mark.parametrize(
    "line",
    [
        "",
        "--bogus",
        "list nix",
        "list model",
        "curve",
        "curve a b c --on h100",
        "curve a --on",
        "curve a --on h100 --json=3",
        "curve a --on h100 --reading x",
        "curve a --on h100 --tp 2x",
        "curve a --onn h100",
        "calibrate missing.json --model a --on h100",
        "calibrate . --on h100",
        "memory a --on h100 --gpu-memory-utilization 9x",
        "memory a --on h100 --gpu-memory-utilization 90",
        "price a --on h100 --plot .",
        "serve --port 99999",
    ],
)
def test_a_line_that_cannot_be_read_is_told_in_korean(line, monkeypatch, capsys, tmp_path):
    """The catalogue has click's sentences as the installed click writes them."""
    monkeypatch.chdir(tmp_path)
    said = {}
    for language in strings.LANGUAGES:
        monkeypatch.setattr(sys, "argv", ["batchline", "--language", language, *line.split()])
        with pytest.raises(SystemExit) as ended:
            main()
        assert ended.value.code == 2
        said[language] = capsys.readouterr().err
    assert said["en"].splitlines()[-1].startswith("Error:")
    (problem,) = (row for row in said["ko"].splitlines() if row.startswith("오류:"))
    assert re.search("[가-힣]", problem.removeprefix("오류:"))
    assert not re.search(r"\b(is|not|such|option|argument|command|Invalid|Missing|Did)\b", said["ko"])
    if "Usage:" in said["en"]:
        assert "사용법:" in said["ko"]
        assert "도움말:" in said["ko"]
