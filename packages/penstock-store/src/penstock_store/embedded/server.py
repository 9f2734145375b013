"""The embedded PostgreSQL: a server for one directory, while it is in use.

    with EmbeddedServer(data / "pg") as server:
        Database(server.url)

The first user starts it, others (in any process) share it, the last one stops it. A killed process
does not count as a user; the server that it leaves running is taken over by the next one. The
server listens on a Unix socket that only its user and root can reach.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, Self
from urllib.parse import quote

import psycopg
from psycopg.sql import SQL, Identifier

from penstock.core.data_directory import private_directory
from penstock.core.errors import AccessRefused, PenstockError
from penstock.core.logs import get_logger
from penstock_store.database import connect
from penstock_store.embedded import cluster, postmaster
from penstock_store.embedded.account import ServerAccount, grant_traversal
from penstock_store.embedded.postmaster import SOCKET_FILE, Postmaster
from penstock_store.errors import StoreUnavailable

log = get_logger(__name__)


class EmbeddedServer:
    """A lease of the server of a directory: `start` and `close`, or a `with` block."""

    __slots__ = ("_lease", "_log", "data", "url")

    def __init__(self, directory: Path) -> None:
        self.data = directory.expanduser().resolve()
        self.url = ""  #: after `start`
        self._lease = ServerLease(self.data)
        # Beside the directory, which belongs to the server's user.
        self._log = self.data.with_name(f"{self.data.name}.log")

    def start(self) -> str:
        """Start or share the server; returns its URL."""
        if self.url:
            return self.url
        private_directory(self.data.parent, traversable=True)
        with self._lease.exclusive():
            account = ServerAccount.of_this_process()
            if account.is_other_user:
                grant_traversal(self.data, account)
                grant_traversal(cluster.programs_folder() / "postgres", account)
            cluster.initialize(self.data, account)
            self._lease.acquire()
            try:
                self.url = self._take_over() or self._create_database(self._launch(account))
            except BaseException:
                self._release(account)
                raise
        return self.url

    def close(self) -> None:
        """Release the lease; the last one stops the server and waits for its end."""
        if not self.url:
            return
        self.url = ""
        with self._lease.exclusive():
            self._release(ServerAccount.of_this_process())

    @property
    def pid(self) -> int | None:
        """The process id, if the server runs."""
        found = postmaster.read_pid_file(self.data)
        return found.pid if found else None

    @property
    def running_url(self) -> str | None:
        """The URL, if the server runs; without a lease it may be stopped any time."""
        found = postmaster.read_pid_file(self.data)
        return _url(found, cluster.DATABASE) if found and found.ready else None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _take_over(self) -> str | None:
        """The URL of a server that runs already: it is in use, or its last user was killed.

        A server that ends meanwhile, because it was killed too, is none.
        """
        found = postmaster.read_pid_file(self.data)
        if found is None:
            return None
        try:
            url = self._create_database(postmaster.wait_until_ready(self.data, self._log))
        except StoreUnavailable:
            if postmaster.has_ended(found.pid):
                return None
            raise
        log.info("embedded database taken over", directory=str(self.data), pid=found.pid)
        return url

    def _launch(self, account: ServerAccount) -> Postmaster:
        sockets = socket_directory(self.data, account)
        postmaster.wait_for_orphans(self.data)
        if postmaster.remove_stale_files(self.data, sockets):
            log.info("embedded database recovery", directory=str(self.data))
        found = postmaster.start_server(self.data, sockets, self._log, account)
        log.info("embedded database started", directory=str(self.data), pid=found.pid)
        return found

    def _release(self, account: ServerAccount) -> None:
        if self._lease.release():
            postmaster.stop_server(self.data, self._log)
            remove_socket_directory(self.data, account)
            log.info("embedded database stopped", directory=str(self.data))

    def _create_database(self, running: Postmaster) -> str:
        """The URL of our database, which is created on a new server."""
        try:
            with connect(_url(running, "postgres")) as connection:
                exists = connection.execute(
                    "SELECT FROM pg_database WHERE datname = %s", (cluster.DATABASE,)
                ).rowcount
                if not exists:
                    name = Identifier(cluster.DATABASE)
                    connection.execute(SQL("CREATE DATABASE {}").format(name))
        except (PenstockError, psycopg.Error) as error:
            tail = postmaster.log_tail(self._log)
            raise StoreUnavailable(
                f"the database in {self.data} is not reachable: {error}\n{tail}"
            ) from error
        return _url(running, cluster.DATABASE)


def _url(running: Postmaster, database: str) -> str:
    host = quote(running.sockets, safe="/")
    return f"postgresql://{cluster.USER}@/{database}?host={host}&port={running.port}"


class ServerLease:
    """Counts the users of a server by file locks, which end with their process.

    The exclusive lock of `turnstile` is held while the server is started or stopped, a shared lock
    of `users` while it is in use.
    """

    __slots__ = ("_turnstile", "_users", "_users_file")

    def __init__(self, directory: Path) -> None:
        self._turnstile = directory.with_name(f".{directory.name}.turnstile")
        self._users = directory.with_name(f".{directory.name}.users")
        self._users_file: int | None = None

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """For starting or stopping the server."""
        file = _open_lock_file(self._turnstile)
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield
        finally:
            os.close(file)

    def acquire(self) -> None:
        """Call within `exclusive`, as `release`."""
        file = _open_lock_file(self._users)
        fcntl.flock(file, fcntl.LOCK_SH)
        self._users_file = file

    def release(self) -> bool:
        """Whether this was the last user."""
        if self._users_file is None:
            return False
        file, self._users_file = self._users_file, None
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        finally:
            os.close(file)
        return True


def _open_lock_file(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


_MAX_SOCKET_PATH: Final = 107
#: The suffix of PostgreSQL's lock file beside the socket.
_LOCK: Final = ".lock"


def socket_directory(data: Path, account: ServerAccount) -> Path:
    """The data directory; for long paths a private directory below the temporary directory."""
    # A comma would separate two hosts in a URL.
    if len(os.fsencode(data / (SOCKET_FILE + _LOCK))) <= _MAX_SOCKET_PATH and "," not in str(data):
        return data
    digest = hashlib.sha256(os.fsencode(data)).hexdigest()[:12]
    short = Path(tempfile.gettempdir()) / f"penstock-{account.uid}-{digest}"
    try:
        short.mkdir(mode=0o700)
        os.chown(short, account.uid, account.gid)
    except FileExistsError:
        _check_owner(short, account)
    return short


def remove_socket_directory(data: Path, account: ServerAccount) -> None:
    """After the server has stopped."""
    sockets = socket_directory(data, account)
    if sockets != data:
        with suppress(OSError):
            sockets.rmdir()


def _check_owner(short: Path, account: ServerAccount) -> None:
    """Anybody can create temporary directories: refuse those of others."""
    status = short.lstat()
    private = stat.S_IMODE(status.st_mode) & 0o077 == 0
    if not (stat.S_ISDIR(status.st_mode) and status.st_uid == account.uid and private):
        raise AccessRefused(
            f"{short} is needed for the socket of the database and belongs to another user"
        )
