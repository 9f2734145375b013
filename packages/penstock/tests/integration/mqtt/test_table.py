"""The table of `docs/mqtt-conformance.md` is whole, and the tests it names exist."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from tests.paths import DOCS

HERE: Final = Path(__file__).parent
PAGE: Final = DOCS / "mqtt-conformance.md"

#: How many statements each section of a standard has, in the order of its appendix B.
MQTT_5: Final = """
1.5.4:3 1.5.5:1 1.5.7:1 2.1.3:1 2.2.1:6 2.2.2:1
3.1.0:2 3.1.2:30 3.1.3:12 3.1.4:6 3.2.0:2 3.2.2:22 3.3.1:13 3.3.2:20 3.3.4:10 3.4.2:3 3.5.2:3
3.6.1:1 3.6.2:3 3.7.2:3 3.8.1:1 3.8.3:5 3.8.4:8 3.9.2:2 3.9.3:2 3.10.1:1 3.10.3:2 3.10.4:6
3.11.2:2 3.11.3:2 3.12.4:1 3.14.0:1 3.14.1:1 3.14.2:4 3.14.4:3 3.15.1:1 3.15.2:3
4.1.0:2 4.2.0:1 4.3.1:1 4.3.2:5 4.3.3:13 4.4.0:2 4.5.0:2 4.6.0:6 4.7.0:1 4.7.1:2 4.7.2:1 4.7.3:4
4.8.2:6 4.9.0:3 4.12.0:7 4.12.1:2 4.13.1:1 4.13.2:1 6.0.0:4
"""
MQTT_3: Final = """
1.5.3:3 2.2.2:2 2.3.1:7 3.1.0:2 3.1.2:24 3.1.3:11 3.1.4:5 3.2.0:1 3.2.2:6 3.3.1:12 3.3.2:3 3.3.4:1
3.3.5:2 3.6.1:1 3.8.1:1 3.8.3:4 3.8.4:6 3.9.3:2 3.10.1:1 3.10.3:2 3.10.4:6 3.12.4:1 3.14.1:1
3.14.4:3 4.1.0:2 4.3.1:1 4.3.2:2 4.3.3:2 4.4.0:1 4.5.0:2 4.6.0:6 4.7.1:3 4.7.2:1 4.7.3:4 4.8.0:2
6.0.0:4 7.0.0:2 7.1.1:1 7.1.2:1
"""
#: The standard has no such number.
SKIPPED: Final = {"[MQTT-2.2.1-1]"}


@dataclass(frozen=True)
class Row:
    statement: str
    tests: tuple[str, ...]
    verdict: str


def statements(sections: str) -> list[str]:
    pairs = [section.split(":") for section in sections.split()]
    numbers = [f"[MQTT-{name}-{one}]" for name, count in pairs for one in range(1, int(count) + 1)]
    return [number for number in numbers if number not in SKIPPED]


def rows(heading: str) -> Iterator[Row]:
    part = PAGE.read_text().split(f"## {heading}\n")[1].split("\n## ")[0]
    for line in part.splitlines():
        if line.startswith("| [MQTT-"):
            statement, _, tests, verdict = (cell.strip() for cell in line.strip("|").split("|"))
            yield Row(statement, tuple(re.findall(r"`([^`]+)`", tests)), verdict)


def existing() -> set[str]:
    """Every test there is, as the table names it."""
    return {
        f"{path.name}::{name}"
        for path in HERE.glob("test_*.py")
        for name in re.findall(r"^(?:async )?def (test_\w+)", path.read_text(), re.MULTILINE)
    }


@pytest.mark.parametrize(("heading", "sections"), [("MQTT 5.0", MQTT_5), ("MQTT 3.1.1", MQTT_3)])
def test_every_statement_is_in_the_table_once_and_in_order(heading: str, sections: str) -> None:
    assert [row.statement for row in rows(heading)] == statements(sections)


def test_as_many_statements_as_the_standards_have() -> None:
    assert (len(statements(MQTT_5)), len(statements(MQTT_3))) == (251, 141)


@pytest.mark.parametrize("heading", ["MQTT 5.0", "MQTT 3.1.1"])
def test_what_is_held_names_a_test(heading: str) -> None:
    held = [row for row in rows(heading) if row.verdict.startswith("held")]

    assert [row.statement for row in held if not row.tests] == []


@pytest.mark.parametrize("heading", ["MQTT 5.0", "MQTT 3.1.1"])
def test_every_test_that_is_named_exists(heading: str) -> None:
    named = {test for row in rows(heading) for test in row.tests}

    assert named - existing() == set()


@pytest.mark.parametrize("heading", ["MQTT 5.0", "MQTT 3.1.1"])
def test_what_is_neither_held_nor_a_clients_duty_has_a_reason(heading: str) -> None:
    reasons = ("held", "client's duty", "does not apply: ", "not held: ")

    assert [row for row in rows(heading) if not row.verdict.startswith(reasons)] == []
