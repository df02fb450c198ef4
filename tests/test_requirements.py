"""Pinned requirements: complete, with hashes, without any address; and scripts that run anywhere."""

import os
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FILES = sorted((ROOT / "requirements").glob("*.txt"))
SCRIPTS = [ROOT / ".ci" / "run", *(path for path in sorted((ROOT / "scripts").iterdir()) if not path.suffix)]


def project():
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def pinned(kind):
    text = (ROOT / "requirements" / f"{kind}.txt").read_text(encoding="utf-8")
    return {
        name: tuple(map(int, version.split(".")[:2]))
        for name, version in re.findall(r"^([\w-]+)==([\d.]+)", text, re.MULTILINE)
    }


def wanted(requirements):
    for requirement in requirements:
        name, least = re.split(">=|==", requirement)
        yield name.casefold().replace("_", "-"), tuple(map(int, least.split(".")[:2]))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_requirement_has_one_version_and_hashes_and_no_address(path):
    text = path.read_text(encoding="utf-8")
    assert text.startswith("# Made by scripts/pin")
    assert not re.search(r"://|index-url|find-links|\s@\s", text)
    entries = re.split(r"\n(?=[a-z])", text.split("\n", 1)[1])
    assert len(entries) > 3
    for entry in entries:
        assert re.match(r"[\w-]+==[\w.]+ ", entry.strip("\n")), entry[:60]
        assert "--hash=sha256:" in entry, entry[:60]


def test_everything_asked_for_is_pinned_at_no_less_than_asked():
    content = project()
    for kind, requirements in (
        ("users", content["project"]["dependencies"]),
        ("dev", content["project"]["dependencies"]),
        ("dev", content["dependency-groups"]["dev"]),
        ("docs", content["dependency-groups"]["docs"]),
        ("build", content["build-system"]["requires"]),
    ):
        have = pinned(kind)
        for name, least in wanted(requirements):
            assert have[name] >= least, f"{name} in {kind}: run scripts/pin"


def test_development_and_users_have_the_same_versions():
    users, development = pinned("users"), pinned("dev")
    assert {name: development[name] for name in users} == users


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_scripts_stop_at_the_first_error_and_can_be_run(path):
    text = path.read_text(encoding="utf-8")
    if not text.startswith("#!/usr/bin/env python3\n"):
        assert text.startswith("#!/usr/bin/env bash\n")
        assert "set -euo pipefail" in text
        assert not re.search(r"\w://", text)
    assert os.access(path, os.X_OK)


def test_the_documentation_lists_every_page_once():
    listed = re.findall(r"^ +- [^:]+: (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(listed) == sorted(path.name for path in (ROOT / "docs").glob("*.md"))
