"""The journal of durable topology."""

from __future__ import annotations

import os
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.broker import topology as topology_module
from penstock.broker.topology import Topology, pack_arguments, unpack_arguments
from tests.doubles import Stand

values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(2**63), 2**63 - 1), st.text(max_size=10)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=5,
)


@given(st.dictionaries(st.text(max_size=10), values, max_size=4))
def test_arguments_are_kept_as_they_are(arguments: dict[str, Any]) -> None:
    assert unpack_arguments(pack_arguments(arguments)) == arguments


class Journal:
    """A topology on a path, opened again and again."""

    def __init__(self, stand: Stand, path: Path) -> None:
        self._stand = stand
        self.path = path
        self.reports: list[str] = []
        self.now = self.open()

    def open(self) -> Topology:
        self.now = Topology(self.path, self._stand.kernel.committer, self.reports.append)
        return self.now

    def reopen(self) -> dict[Any, Any]:
        self.now.close()
        self.open()
        return self.records

    @property
    def records(self) -> dict[Any, Any]:
        return {key: value for kind in ("queue", "vhost") for key, value in self.now.all(kind)}


@pytest.fixture
def journal(stand: Stand, tmp_path: Path) -> Journal:
    return Journal(stand, tmp_path / "journal.jsonl")


async def test_the_last_word_about_a_key_holds(journal: Journal) -> None:
    journal.now.put(("queue", "/", "a"), {"n": 1})
    journal.now.put(("queue", "/", "b"), {"n": 2})
    journal.now.put(("queue", "/", "a"), {"n": 3})
    journal.now.drop(("queue", "/", "b"))
    journal.now.put(("vhost", "ü\udc80"), {})
    expected = {("queue", "/", "a"): {"n": 3}, ("vhost", "ü\udc80"): {}}
    assert journal.records == expected
    assert journal.reopen() == expected


async def test_what_changes_nothing_writes_nothing(journal: Journal) -> None:
    journal.now.put(("queue", "/", "a"), {"n": 1})
    journal.now.journal.write()
    size = journal.path.stat().st_size
    journal.now.put(("queue", "/", "a"), {"n": 1})
    journal.now.drop(("queue", "/", "never"))
    journal.now.journal.write()
    assert journal.path.stat().st_size == size


async def test_changes_are_written_at_the_end_of_the_turn(stand: Stand, journal: Journal) -> None:
    journal.now.put(("queue", "/", "a"), {"n": 1})
    assert journal.path.read_bytes() == b""
    stand.kernel.write_batch.flush()
    assert b'"a"' in journal.path.read_bytes()


async def test_a_torn_last_line_is_cut_and_reported(journal: Journal) -> None:
    journal.now.put(("queue", "/", "a"), {"n": 1})
    journal.now.close()
    with journal.path.open("ab") as file:
        file.write(b'{"put": ["queue", "/", "b"], "val')
    journal.open()
    assert list(journal.records) == [("queue", "/", "a")]
    assert "torn" in journal.reports[0]
    journal.now.put(("queue", "/", "c"), {})
    assert list(journal.reopen()) == [("queue", "/", "a"), ("queue", "/", "c")]


@pytest.mark.parametrize("line", [b"nonsense", b'"text"', b"{}", b"[1]", b'{"put": 7}', b"\xff"])
async def test_a_damaged_line_costs_itself_and_is_reported(journal: Journal, line: bytes) -> None:
    journal.now.put(("queue", "/", "a"), {"n": 1})
    journal.now.close()
    journal.path.write_bytes(line + b"\n" + journal.path.read_bytes())
    journal.open()
    assert list(journal.records) == [("queue", "/", "a")]
    assert "line 1" in journal.reports[0]


async def test_history_is_cut_when_there_is_much_of_it(
    stand: Stand, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topology_module, "COMPACT_BYTES", 500)
    journal.reopen()
    for number in range(50):
        journal.now.put(("queue", "/", "a"), {"n": number})
        await stand.synced()
    assert len(journal.path.read_bytes().splitlines()) < 20
    assert journal.reopen() == {("queue", "/", "a"): {"n": 49}}


async def test_queues_that_come_and_go_leave_a_journal_of_the_same_size(
    stand: Stand, journal: Journal
) -> None:
    sizes = []
    for number in range(150):
        for queue in range(20):
            journal.now.put(("queue", "/", f"{number}-{queue}"), {"durable": True})
        for queue in range(20):
            journal.now.drop(("queue", "/", f"{number}-{queue}"))
        await stand.synced()
        sizes.append(journal.path.stat().st_size)
    first, second = sizes[:75], sizes[75:]
    assert max(second) <= max(first) < 1.2 * topology_module.COMPACT_BYTES
    assert any(later < earlier for earlier, later in pairwise(second)), "compacted again"


async def test_a_full_disk_keeps_changes_for_later(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal.now.put(("queue", "/", "a"), {"n": 1})
    with monkeypatch.context() as patch:
        pwrite = os.pwrite

        def fill(fd: int, data: bytes, position: int) -> int:
            if position:
                raise OSError(28, "No space left on device")
            return pwrite(fd, data[:5], position)

        patch.setattr(os, "pwrite", fill)
        with pytest.raises(OSError, match="No space left"):
            journal.now.journal.write()
    assert journal.path.read_bytes() == b"", "nothing half"
    journal.now.journal.write()
    assert journal.reopen() == {("queue", "/", "a"): {"n": 1}}


@pytest.mark.parametrize("step", ["open", "replace"])
async def test_a_failed_compaction_leaves_the_journal_in_use(
    stand: Stand, journal: Journal, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, step: str
) -> None:
    """And the next change in it, not in a file that was opened since."""
    monkeypatch.setattr(topology_module, "COMPACT_BYTES", 500)
    journal.reopen()
    await stand.synced()

    def fail(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Path if step == "replace" else os, step, fail)
        for number in range(30):
            journal.now.put(("queue", "/", "a"), {"n": number})
            await stand.synced()
    segment = tmp_path / "segment"
    with segment.open("wb"):  # takes the lowest number that is free
        journal.now.put(("queue", "/", "b"), {"n": 1})
        await stand.synced()
    assert segment.read_bytes() == b""
    assert journal.reopen() == {("queue", "/", "a"): {"n": 29}, ("queue", "/", "b"): {"n": 1}}


async def test_compaction_is_tried_again_after_it_has_failed(
    stand: Stand, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topology_module, "COMPACT_BYTES", 500)
    journal.reopen()

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", fail)
        for number in range(15):
            journal.now.put(("queue", "/", "a"), {"n": number})
            await stand.synced()
    for number in range(30):
        journal.now.put(("queue", "/", "a"), {"n": number})
        await stand.synced()
    assert len(journal.path.read_bytes().splitlines()) < 20


async def test_a_new_journal_is_synced_with_its_directory_which_may_be_new(
    journal: Journal, tmp_path: Path
) -> None:
    descriptors = journal.now.journal.begin_sync()
    synced = [Path(f"/proc/self/fd/{descriptor}").readlink() for descriptor in descriptors]
    for descriptor in descriptors:
        os.close(descriptor)
    assert synced == [journal.path, tmp_path, tmp_path.parent]


async def test_nobody_else_may_read_the_journal(journal: Journal) -> None:
    assert journal.path.stat().st_mode & 0o777 == 0o600
