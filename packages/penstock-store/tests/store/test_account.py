"""A way through closed directories, for one user."""

from __future__ import annotations

import os
import pwd
import stat
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from penstock_store.embedded import account as accounts
from penstock_store.embedded.account import ServerAccount, grant_traversal

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root runs it as another")

SERVER = ServerAccount("daemon", 1, 1)
OTHER = ServerAccount("nobody", 65534, 65534)


def may(account: ServerAccount, flag: str, path: Path) -> bool:
    tested = subprocess.run(
        ["/usr/bin/test", flag, str(path)],
        user=account.uid,
        group=account.gid,
        extra_groups=[],
        cwd="/",
        check=False,
    )
    return tested.returncode == 0


@pytest.fixture
def closed(grounds: Path) -> Path:
    """A directory within one that is closed to everybody but root."""
    inner = grounds / "closed" / "inner"
    inner.mkdir(parents=True)
    inner.parent.chmod(0o700)
    return inner


def test_the_account_may_pass(closed: Path) -> None:
    assert not may(SERVER, "-e", closed)

    grant_traversal(closed, SERVER)

    assert may(SERVER, "-e", closed)


def test_it_may_not_look_around(closed: Path) -> None:
    grant_traversal(closed, SERVER)

    assert not may(SERVER, "-r", closed.parent)
    assert not may(SERVER, "-w", closed.parent)


def test_nobody_else_gains_anything(closed: Path) -> None:
    grant_traversal(closed, SERVER)

    assert not may(OTHER, "-e", closed)
    assert stat.S_IMODE(closed.parent.stat().st_mode) & 0o007 == 0


def test_directories_that_are_open_are_not_touched(closed: Path) -> None:
    closed.parent.chmod(0o711)

    grant_traversal(closed, SERVER)

    assert not os.listxattr(closed.parent)


def test_a_passage_that_a_chmod_closed_is_opened_again(closed: Path) -> None:
    grant_traversal(closed, SERVER)
    closed.parent.chmod(0o700)
    assert not may(SERVER, "-e", closed)

    grant_traversal(closed, SERVER)

    assert may(SERVER, "-e", closed)


def test_several_accounts_may_have_one(closed: Path) -> None:
    grant_traversal(closed, SERVER)
    grant_traversal(closed, OTHER)

    assert may(SERVER, "-e", closed)
    assert may(OTHER, "-e", closed)


def test_processes_that_start_together_add_the_user_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    added = tmp_path / "users"
    program = tmp_path / "useradd"
    program.write_text(f"#!/bin/sh\nfor name; do :; done\nsleep 0.1\necho $name >> {added}\n")
    program.chmod(0o755)
    root = pwd.getpwnam("root")

    def user_of_file(name: str) -> pwd.struct_passwd:
        if not added.exists():
            raise KeyError(name)
        return pwd.struct_passwd((name, *root[1:]))

    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setattr(accounts, "_USER_LOCK", tmp_path / "lock")
    monkeypatch.setattr(pwd, "getpwnam", user_of_file)
    with ThreadPoolExecutor(8) as threads:
        found = [threads.submit(ServerAccount.of_this_process) for _ in range(8)]

    assert {one.result().name for one in found} == {accounts.SYSTEM_USER}
    assert added.read_text().split() == [accounts.SYSTEM_USER]
