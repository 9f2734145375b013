"""The page's table is true: every call it names is there, and every test."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.hives.app.world import World

ROOT = Path(__file__).parents[4]
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


def test_every_test_of_the_table_is_there() -> None:
    folder = ROOT / "tests" / "hives" / "app"
    for _, _, test in rows():
        for file, name in re.findall(r"`([\w/.]+)::(\w+)`", test):
            text = (folder / file).read_text(encoding="utf-8")
            assert re.search(rf"^(async )?def {name}\(", text, re.MULTILINE), name


@pytest.mark.parametrize("group", [*map(str, range(1, 11)), "F1", "F2", "F3"])
def test_every_group_of_features_has_its_rows(group: str) -> None:
    assert any(re.match(rf"{group}\b", what) for what, _, _ in rows())
