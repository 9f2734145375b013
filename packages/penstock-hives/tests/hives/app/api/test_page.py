"""The page's tables are true: every call they name is there, and every test."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.hives.app.world import World
from tests.paths import ROOT

ROW = re.compile(r"^\| (?P<what>.*?) \| (?P<call>.*?) \| (?P<test>.*?) ?\|$")


def rows() -> list[tuple[str, str, str]]:
    page = (ROOT / "docs" / "hives.md").read_text(encoding="utf-8")
    section = page.partition("## Everything there is")[2].partition("\n## ")[0]
    found = [match.groups() for line in section.splitlines() if (match := ROW.match(line))]
    return [(what, call, test) for what, call, test in found[2:]]


async def test_every_call_of_the_table_is_there(world: World) -> None:
    document = await world.read("/openapi.json")
    calls = {f"{verb.upper()} {path}" for path, of in document["paths"].items() for verb in of}

    for _, call, _ in rows():
        for verb, path in re.findall(r"`([A-Z]+) (/[^`]*)`", call):
            assert f"{verb} /v1{path}" in calls


def named_in(cell: str) -> list[tuple[str, str]]:
    """Files and names; `…` is the file before."""
    found: list[tuple[str, str]] = []
    for file, name in re.findall(r"`([\w/.…]+)::(\w+)`", cell):
        found.append((found[-1][0] if file == "…" else file, name))
    return found


def is_there(file: str, name: str) -> bool:
    text = (Path(__file__).parents[1] / file).read_text(encoding="utf-8")
    return re.search(rf"^(async )?def {name}\(", text, re.MULTILINE) is not None


def test_every_row_of_the_table_names_a_test_that_is_there() -> None:
    for what, _, cell in rows():
        named = named_in(cell)
        assert named, what
        assert [each for each in named if not is_there(*each)] == []


def test_every_principle_names_a_test_that_is_there() -> None:
    page = (ROOT / "docs" / "hives.md").read_text(encoding="utf-8")
    principles = re.findall(r"^\| (E\d+) \|.*\| (.*?) \|$", page, re.MULTILINE)
    assert [name for name, _ in principles] == [f"E{number}" for number in range(1, 16)]
    for name, cell in principles:
        named = named_in(cell)
        assert named, name
        assert [each for each in named if not is_there(*each)] == []


@pytest.mark.parametrize("group", [*map(str, range(1, 11)), "F1", "F2", "F3"])
def test_every_group_of_features_has_its_rows(group: str) -> None:
    assert any(re.match(rf"{group}\b", what) for what, _, _ in rows())
