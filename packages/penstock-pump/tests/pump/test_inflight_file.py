"""A draft: written under its name in flight by one at a time, whoever else wants to."""

from __future__ import annotations

import fcntl
from pathlib import Path

import pytest

from penstock_pump.errors import SourceUnavailable
from penstock_pump.files.inflight import InflightFile


def test_a_draft_another_one_is_at_is_left_to_it(tmp_path: Path) -> None:
    path = str(tmp_path / "f.tmp")
    first, second = InflightFile(path, None, None), InflightFile(path, None, None)
    first.open()
    with pytest.raises(SourceUnavailable, match="another process"):
        second.open()
    first.close()
    assert second.open() == 0
    second.close()


def test_a_draft_that_got_its_name_while_it_was_opened_is_not_written_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between opening it and locking it the other one may have finished: what was opened then is
    the file under its final name."""
    path, final = str(tmp_path / "f.tmp"), tmp_path / "f"
    first, second = InflightFile(path, None, None), InflightFile(path, None, None)
    first.open()
    first.write(b"whole")
    lock = fcntl.flock

    def lock_late(fd: int, how: int) -> None:
        if not final.exists():
            first.rename_to(str(final))
        lock(fd, how)

    monkeypatch.setattr(fcntl, "flock", lock_late)
    second.open(resume=False)
    assert final.read_bytes() == b"whole"
    second.write(b"anew")
    assert final.read_bytes() == b"whole"
    second.rename_to(str(final))
    assert final.read_bytes() == b"anew"
