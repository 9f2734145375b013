"""Where there is a gate, jobs are for operators."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from penstock.jobs.http.desk import JobDesk
from penstock.web.gate import Gate, allowed
from penstock.web.jobs.section import section_over
from penstock.web.pages import OPERATOR, Person
from tests.jobs.http.memory import MemoryJobs


class Keeper:
    async def admit(self, name: str, password: str) -> str | None:
        return None

    async def recall(self, key: str) -> Person | None:
        return None

    async def dismiss(self, key: str) -> None: ...


@asynccontextmanager
async def opened() -> AsyncIterator[JobDesk]:
    yield MemoryJobs()


@pytest.mark.parametrize(
    ("roles", "may"), [((), False), (("business",), False), (("business", OPERATOR), True)]
)
def test_pages_and_results_are_for_operators(roles: tuple[str, ...], may: bool) -> None:
    section = section_over(opened)
    keeper: Gate = Keeper()
    person = Person("1", "Ada", frozenset(roles))
    guarded = [(each.path, each.role) for each in section.pages]
    guarded += [(each.path, each.role) for each in section.downloads]
    for path, role in guarded:
        assert allowed(person, role, keeper) is may, path
        assert allowed(person, role, None), "without a gate everyone may"
