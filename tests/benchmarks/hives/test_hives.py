"""The benchmark of hives runs, and measures what it says."""

from __future__ import annotations

import pytest

from benchmarks.hives.__main__ import _account, reads
from benchmarks.hives.streams import measure


@pytest.mark.slow
async def test_reads_of_each_kind_are_answered_and_counted() -> None:
    found = {name: [await reads(name, 2, 0.5)] for name in ("fast", "encoded", "plain")}
    figures = await measure(20, 0.5)
    assert all(kept[0].requests > 0 for kept in found.values())
    assert figures.events > 0
    account = _account(found, figures, rounds=1, connections=2)
    assert account.startswith("# Hives\n")
    assert "20 streams took" in account
