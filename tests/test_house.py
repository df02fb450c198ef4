"""The house stays in order: floors, public names, docstrings with units and examples."""

import ast
import importlib
import inspect
import pkgutil
import re
from pathlib import Path

import pytest

import batchline

SRC = Path(batchline.__file__).parent

# A module imports only from floors below it, or from its own floor when it stands further right (docs/architecture.md).
FLOORS = [
    ["errors", "strings", "units", "notebook"],
    ["roofline", "queueing", "precision", "checkpoint", "architecture", "accelerator", "price", "memory", "workload"],
    ["engine", "deployment"],
    ["step", "prior"],
    ["serving", "cost", "readings"],
    [
        "choice",
        "sweep",
        "curve_question",
        "goodput",
        "simulate",
        "measure",
        "calibrate",
        "served_names",
        "served_launch",
        "served_point",
        "validate",
        "published",
    ],
    ["space", "fleet", "planner", "sensitivity", "worth", "market", "price_sheet", "launch", "explanation"],
    ["chart", "chart_plan", "chart_price", "chart_simulation", "chart_validation", "report"],
    ["cli", "web", "__main__"],
]
PLACE = {name: (floor, place) for floor, row in enumerate(FLOORS) for place, name in enumerate(row)}


def rooms():
    for path in sorted(SRC.rglob("*.py")):
        parts = path.relative_to(SRC).with_suffix("").parts
        if parts != ("__init__",):
            yield path, parts[0]


def imports(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "batchline":
            rest = node.module.split(".")[1:]
            yield from ([rest[0]] if rest else [alias.name for alias in node.names])
        elif isinstance(node, ast.Import):
            yield from (alias.name.split(".")[1] for alias in node.names if alias.name.startswith("batchline."))


def test_every_room_has_a_floor():
    assert {room for _, room in rooms()} <= set(PLACE)


@pytest.mark.parametrize(("path", "room"), [pytest.param(*r, id=str(r[0].relative_to(SRC))) for r in rooms()])
def test_a_room_uses_only_what_stands_below(path, room):
    above = [used for used in imports(path) if used in PLACE and used != room and PLACE[used] > PLACE[room]]
    assert not above, f"{room} uses {above}, which stand above it"


def private(name):
    return name.startswith("_") and not name.startswith("__")


def borrowed(path, package):
    """Private modules and names of others that a file uses: its own package shares its private modules, no names."""
    tree = ast.parse(path.read_text())
    modules = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "batchline":
            room = node.module.split(".")[1:2]
            shared = room == [package]
            if not shared and any(map(private, node.module.split("."))):
                yield node.module
            for alias in node.names:
                inner = SRC.joinpath(*node.module.split(".")[1:], alias.name)
                is_module = inner.with_suffix(".py").exists() or inner.is_dir()
                if is_module:
                    modules[alias.asname or alias.name] = f"{node.module}.{alias.name}"
                if private(alias.name) and not (shared and is_module):
                    yield f"{node.module}.{alias.name}"
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and private(node.attr) and getattr(node.value, "id", "") in modules:
            yield f"{modules[node.value.id]}.{node.attr}"


def users():
    for path, room in rooms():
        yield pytest.param(path, room, id=str(path.relative_to(SRC)))
    for folder in ("validation", "benchmarks", "examples"):
        for path in sorted((SRC.parents[1] / folder).glob("*.py")):
            yield pytest.param(path, "", id=f"{folder}/{path.name}")


@pytest.mark.parametrize(("path", "package"), list(users()))
def test_nobody_uses_the_private_names_of_another(path, package):
    assert sorted(set(borrowed(path, package))) == []


def test_public_names_are_there_and_sorted():
    assert batchline.__all__ == sorted(batchline.__all__)
    assert set(batchline.__all__) == set(batchline._HOMES)
    for name in batchline.__all__:
        assert getattr(batchline, name) is not None
    with pytest.raises(AttributeError, match="nonsense"):
        batchline.nonsense  # noqa: B018


def modules_of_the_library():
    for path, room in rooms():
        inner = path.relative_to(SRC).with_suffix("").parts
        if room not in {"cli", "web", "__main__"} and not any(map(private, inner)):
            yield pytest.param(path, id=str(path.relative_to(SRC)))


@pytest.mark.parametrize("path", list(modules_of_the_library()))
def test_a_module_says_what_is_public(path):
    """What does not begin with `_` is in `__all__`, so that nobody has to guess what may be used."""
    body = ast.parse(path.read_text()).body
    defined = {
        node.name for node in body if isinstance(node, ast.FunctionDef | ast.ClassDef) and not private(node.name)
    }
    lists = [node.value for node in body if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"]
    told = {name for each in lists for name in ast.literal_eval(each)}
    assert defined <= told


FOLDERS = {path.parent.name for path in SRC.glob("*/__init__.py")} - {
    "cli",
    "web",
}  # a file for each command


@pytest.mark.parametrize("folder", sorted(FOLDERS))
def test_a_folder_says_what_stands_in_it(folder):
    names = {path.stem for path in (SRC / folder).glob("*.py")} - {"__init__"}
    told = re.findall(r"\w+", ast.get_docstring(ast.parse((SRC / folder / "__init__.py").read_text())) or "")
    assert names <= set(told)


def public_functions():
    for info in pkgutil.iter_modules([str(SRC)]):
        if info.name in {"cli", "web", "__main__"}:
            continue
        module = importlib.import_module(f"batchline.{info.name}")
        for name in getattr(module, "__all__", []):
            thing = getattr(module, name)
            if inspect.isfunction(thing) and thing.__module__.startswith("batchline"):
                yield pytest.param(thing, id=f"{info.name}.{name}")


@pytest.mark.parametrize("function", list(public_functions()))
def test_docstrings_name_every_argument_and_give_units(function):
    text = inspect.getdoc(function) or ""
    arguments = [a for a in inspect.signature(function).parameters if a not in {"self", "cls"}]
    section = re.search(r"Parameters\n-+\n(.*?)(\n\n[A-Z][a-z]+\n-+|\Z)", text, re.DOTALL)
    if arguments:
        assert section, f"{function.__name__} documents no parameters"
        documented = re.findall(r"^(\*{0,2}\w+(?:, \*{0,2}\w+)*)(?: :.*)?$", section[1], re.MULTILINE)
        names = [name.strip(" *") for group in documented for name in group.split(",")]
        assert sorted(names) == sorted(arguments)
    numbers = [p for p in inspect.signature(function).parameters.values() if "Floats" in str(p.annotation)]
    if numbers:
        assert "[" in text or "As in" in text or "As of" in text, f"{function.__name__} gives no units"


def test_no_law_holds_a_fixed_number_of_examples():
    # A number in a test's own settings wins over the profile: `thorough` would try no more than every other run.
    fixed = re.compile(r"max_examples=\s*\d")
    files = sorted(Path(__file__).parent.glob("test_*.py"))
    assert [path.name for path in files if fixed.search(path.read_text())] == []
