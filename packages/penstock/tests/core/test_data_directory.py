"""Data directories: who may read them, and that one process at a time works in them."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.core.data_directory import (
    FileLock,
    lock_directory,
    private_directory,
    private_opener,
)
from penstock.core.errors import ResourceLocked

HOLD = """
import sys
from pathlib import Path
from penstock.core.data_directory import lock_directory
lock = lock_directory(Path(sys.argv[1]), "lock", "")
print("held", flush=True)
sys.stdin.read()
"""


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_second_lock_names_the_directory_the_process_and_what_to_do(tmp_path: Path) -> None:
    with lock_directory(tmp_path, "lock", "stop it"):
        with pytest.raises(ResourceLocked) as refused:
            lock_directory(tmp_path, "lock", "stop it")
        assert str(refused.value) == f"{tmp_path} is in use by process {os.getpid()}: stop it"
    lock_directory(tmp_path, "lock", "stop it").release()


def test_parts_with_a_name_each_share_a_directory(tmp_path: Path) -> None:
    with lock_directory(tmp_path, "one", ""), lock_directory(tmp_path, "other", ""):
        assert FileLock(tmp_path / "one").is_held


def test_a_killed_process_leaves_no_lock_behind(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(ResourceLocked, match=f"process {holder.pid}"):
            lock_directory(tmp_path, "lock", "")
        holder.kill()
        holder.wait()
        lock_directory(tmp_path, "lock", "").release()


def test_whether_a_lock_is_held_can_be_asked_without_taking_it(tmp_path: Path) -> None:
    lock = FileLock(tmp_path / "lock")
    assert not lock.is_held, "there is no file"
    assert lock.acquire()
    assert FileLock(tmp_path / "lock").is_held
    lock.release()
    assert not lock.is_held


def test_a_private_directory_is_its_owners_alone(tmp_path: Path) -> None:
    assert mode(private_directory(tmp_path / "new" / "data")) == 0o700
    loose = tmp_path / "loose"
    loose.mkdir()
    loose.chmod(0o755)
    assert mode(private_directory(loose)) == 0o700


def test_who_was_let_through_a_directory_may_still_pass(tmp_path: Path) -> None:
    loose = tmp_path / "loose"
    loose.mkdir()
    loose.chmod(0o755)
    assert mode(private_directory(loose, traversable=True)) == 0o711


def test_a_private_file_is_its_owners_alone(tmp_path: Path) -> None:
    with open(tmp_path / "file", "w", opener=private_opener) as file:
        file.write("x")
    assert mode(tmp_path / "file") == 0o600
