"""The embedded PostgreSQL: a server on one directory, for as long as somebody uses it.

    with EmbeddedServer(data / "pg") as server:
        Database(server.url)

Whoever comes first starts it, later ones (in this process or others) share it, the last one to
leave stops it. A process that was killed is no user any more; the server it left running is taken
over by the next. It listens on a Unix socket in its own directory and on no port; only the user
who runs it, and root, can reach it.
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
from types import TracebackType
from typing import Final, Self
from urllib.parse import quote

import psycopg
from psycopg.sql import SQL, Identifier

from penstock.core.data_directory import private_directory
from penstock.core.errors import AccessRefused, PenstockError
from penstock.core.logs import get_logger
from penstock_store.database import connect
from penstock_store.embedded import (
    cluster,
    postmaster,
)
from penstock_store.embedded.account import ServerAccount, grant_traversal
from penstock_store.embedded.postmaster import SOCKET_FILE, Postmaster
from penstock_store.errors import StoreUnavailable

log = get_logger(__name__)


class EmbeddedServer:
    """A user of the server on a directory. `start` and `close`, or a `with` block."""

    __slots__ = ("_lease", "_log", "data", "url")

    def __init__(self, directory: Path) -> None:
        self.data = directory.expanduser().resolve()
        #: Where it is, once started.
        self.url = ""
        self._lease = ServerLease(self.data)
        # Beside the directory: that belongs to the server's user, this to us.
        self._log = self.data.with_name(f"{self.data.name}.log")

    def start(self) -> str:
        """Have the server running, and use it. Its URL."""
        if self.url:
            return self.url
        private_directory(self.data.parent, traversable=True)
        with self._lease.exclusive():
            account = ServerAccount.of_this_process()
            if account.other:
                grant_traversal(self.data, account)
                grant_traversal(cluster.programs_folder() / "postgres", account)
            cluster.initialize(self.data, account)
            self._lease.acquire()
            try:
                running = self._taken_over() or self._launched(account)
                self.url = self._with_database(running)
            except BaseException:
                self._leave(account)
                raise
        return self.url

    def close(self) -> None:
        """Stop using it. The last one stops the server, and waits until it has stopped."""
        if not self.url:
            return
        self.url = ""
        with self._lease.exclusive():
            self._leave(ServerAccount.of_this_process())

    @property
    def pid(self) -> int | None:
        """The server's process, if it runs, whoever uses it."""
        found = postmaster.read_pid_file(self.data)
        return found.pid if found else None

    @property
    def running_url(self) -> str | None:
        """Where it is, if it runs, whoever uses it. Not a claim: it may be stopped any time."""
        found = postmaster.read_pid_file(self.data)
        return _url(found, cluster.DATABASE) if found and found.ready else None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _taken_over(self) -> Postmaster | None:
        """A server that runs already: others use it, or whoever started it was killed."""
        if postmaster.read_pid_file(self.data) is None:
            return None
        found = postmaster.wait_until_ready(self.data, self._log)
        log.info("embedded database taken over", directory=str(self.data), pid=found.pid)
        return found

    def _launched(self, account: ServerAccount) -> Postmaster:
        place = socket_directory(self.data, account)
        if postmaster.remove_stale_files(self.data, place):
            log.info("a killed database recovers", directory=str(self.data))
        found = postmaster.start_server(self.data, place, self._log, account)
        log.info("embedded database started", directory=str(self.data), pid=found.pid)
        return found

    def _leave(self, account: ServerAccount) -> None:
        if self._lease.release():
            postmaster.stop_server(self.data, self._log)
            remove_socket_directory(self.data, account)
            log.info("embedded database stopped", directory=str(self.data))

    def _with_database(self, running: Postmaster) -> str:
        """The URL of our database, which a new server does not have yet."""
        try:
            with connect(_url(running, "postgres")) as connection:
                have = connection.execute(
                    "SELECT FROM pg_database WHERE datname = %s", (cluster.DATABASE,)
                ).rowcount
                if not have:
                    name = Identifier(cluster.DATABASE)
                    connection.execute(SQL("CREATE DATABASE {}").format(name))
        except (PenstockError, psycopg.Error) as error:
            words = postmaster.log_tail(self._log)
            raise StoreUnavailable(
                f"the database in {self.data} does not answer: {error}\n{words}"
            ) from error
        return _url(running, cluster.DATABASE)


def _url(running: Postmaster, database: str) -> str:
    place = quote(running.sockets, safe="/")
    return f"postgresql://{cluster.USER}@/{database}?host={place}&port={running.port}"


# Who uses an embedded server: the last one out stops it.
#
# Two files beside the data directory, locked by the system, so that a process that is killed lets
# go by dying. `turnstile` is held by whoever starts or stops the server, one at a time; a share of
# `users` is held by everyone who uses it.


class ServerLease:
    """One user's claim to the server of one directory."""

    __slots__ = ("_turnstile", "_users", "_users_file")

    def __init__(self, directory: Path) -> None:
        self._turnstile = directory.with_name(f".{directory.name}.turnstile")
        self._users = directory.with_name(f".{directory.name}.users")
        self._users_file: int | None = None

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Hold the turnstile: nobody else starts or stops the server meanwhile."""
        file = _open_lock_file(self._turnstile)
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield
        finally:
            os.close(file)

    def acquire(self) -> None:
        """Claim the server. To be called at the turnstile, as is `leave`."""
        file = _open_lock_file(self._users)
        fcntl.flock(file, fcntl.LOCK_SH)
        self._users_file = file

    def release(self) -> bool:
        """Give up the claim. Whether it was the last one."""
        if self._users_file is None:
            return False
        file, self._users_file = self._users_file, None
        try:
            # Ours becomes exclusive if nobody else holds a share; at the turnstile nobody comes.
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        finally:
            os.close(file)
        return True


def _open_lock_file(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


# Where an embedded server's socket lies: in its data directory, if the path will do.
#
# A socket's path has to fit into 107 bytes. A data directory deep down gets a directory for its
# socket among the system's temporary ones, closed to others like itself, while the server runs.

_MAX_SOCKET_PATH: Final = 107
#: PostgreSQL makes a lock file beside the socket, whose name is longer.
_LOCK: Final = ".lock"


def socket_directory(data: Path, account: ServerAccount) -> Path:
    """A directory that only the account (and root) may enter."""
    # A comma would part it in two wherever a list of hosts can stand.
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
    """Remove the directory of a server that has stopped; one that was killed leaves its socket."""
    place = socket_directory(data, account)
    if place != data:
        with suppress(OSError):
            place.rmdir()


def _check_owner(short: Path, account: ServerAccount) -> None:
    """Anyone may make a directory among the temporary ones: one that is not ours is a trap."""
    status = short.lstat()
    private = stat.S_IMODE(status.st_mode) & 0o077 == 0
    if not (stat.S_ISDIR(status.st_mode) and status.st_uid == account.uid and private):
        raise AccessRefused(f"{short} belongs to somebody else; the database's socket goes there")
