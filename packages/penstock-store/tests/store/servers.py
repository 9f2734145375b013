"""Servers the tests of the store talk to, beside the embedded database."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from penstock.core.retry import retry
from penstock_store import connect
from penstock_store.embedded.account import ServerAccount, grant_traversal
from tests.peers import PeerMissing, Process, find_program, free_port

PASSWORD = "p@ss/word"


class PlainPostgres:
    """A PostgreSQL from the system's packages: on a port, with a password."""

    def __init__(self, folder: Path) -> None:
        versions = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=_version)
        places = [str(place) for place in reversed(versions)]
        self._server = find_program("postgres", "postgresql", *places)
        self._initdb = str(Path(self._server).resolve().with_name("initdb"))
        self.folder = folder
        self.port = free_port()
        self._process: Process | None = None

    @property
    def url(self) -> str:
        return f"postgresql://owner:p%40ss%2Fword@127.0.0.1:{self.port}/postgres"

    def start(self) -> None:
        data = self.folder / "data"
        as_user: list[str] = []
        if os.geteuid() == 0:  # which PostgreSQL refuses
            account = ServerAccount.of_this_process()
            grant_traversal(data, account)
            os.chown(self.folder, account.uid, account.gid)
            groups = ("--regid", str(account.gid), "--clear-groups")
            as_user = ["setpriv", "--reuid", str(account.uid), *groups]
        secret = self.folder / "secret"
        secret.write_text(PASSWORD)
        secret.chmod(0o644)
        subprocess.run(
            [
                *(*as_user, self._initdb, f"--pgdata={data}", "--username=owner"),
                *(f"--pwfile={secret}", "--auth=scram-sha-256", "--encoding=UTF8", "--locale=C"),
            ],
            check=True,
            capture_output=True,
            cwd="/",
        )
        self._process = Process(
            [
                *(*as_user, self._server, "-D", str(data), "-p", str(self.port)),
                *("-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories="),
            ],
            self.folder / "postgres.log",
            {"PATH": os.environ["PATH"], "LC_ALL": "C"},
        )
        self._process.wait_for_port(self.port)
        retry(lambda: connect(self.url).close())  # it may say that it is starting

    def stop(self) -> None:
        if self._process is not None:
            self._process.end(signal.SIGINT)


class Memcached:
    """A memcached of the test's own; started again it keeps its port, and has forgotten all."""

    def __init__(self, folder: Path) -> None:
        self._server = find_program("memcached", "memcached")
        self._folder = folder
        self.port = free_port()
        self._process: Process | None = None

    @property
    def url(self) -> str:
        return f"memcached://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None, "not started"
        return self._process.pid

    def start(self) -> None:
        user = ["-u", "root"] if os.geteuid() == 0 else []
        self._process = Process(
            [self._server, "-l", "127.0.0.1", "-p", str(self.port), "-U", "0", "-m", "16", *user],
            self._folder / "memcached.log",
            {"PATH": os.environ["PATH"]},
        )
        self._process.wait_for_port(self.port)

    def kill(self) -> None:
        if self._process is not None:
            self._process.end(signal.SIGKILL)


def python_for(uid: int) -> str:
    """A Python of our version that another user may run."""
    ours = sys.version_info[:2]
    for path in (sys.executable, f"/usr/bin/python{ours[0]}.{ours[1]}"):
        try:
            subprocess.run([path, "-c", ""], user=uid, cwd="/", check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError):
            continue
        return path
    raise PeerMissing("no Python that another user may run (Debian package python3)")


def _version(folder: Path) -> float:
    return float(folder.parent.name)
