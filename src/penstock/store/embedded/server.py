"""The embedded PostgreSQL: a server on one directory, for as long as somebody uses it.

    with EmbeddedServer(data / "pg") as server:
        Database(server.url)

Whoever comes first starts it, later ones (in this process or others) share it, the last one to
leave stops it. A process that was killed is no user any more; the server it left running is taken
over by the next. It listens on a Unix socket in its own directory and on no port; only the user
who runs it, and root, can reach it.
"""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import quote

import psycopg
from psycopg.sql import SQL, Identifier

from penstock.core.data_directory import private_directory
from penstock.core.errors import PenstockError
from penstock.core.logs import get_logger
from penstock.store.database import connect
from penstock.store.embedded import cluster, postmaster, process, programs, sockets
from penstock.store.embedded.account import Account
from penstock.store.embedded.claims import Claims
from penstock.store.embedded.passage import open_passage
from penstock.store.embedded.postmaster import Postmaster
from penstock.store.errors import StoreUnavailable

log = get_logger(__name__)


class EmbeddedServer:
    """A user of the server on a directory. `start` and `close`, or a `with` block."""

    __slots__ = ("_claims", "_log", "data", "url")

    def __init__(self, directory: Path) -> None:
        self.data = directory.expanduser().resolve()
        #: Where it is, once started.
        self.url = ""
        self._claims = Claims(self.data)
        # Beside the directory: that belongs to the server's user, this to us.
        self._log = self.data.with_name(f"{self.data.name}.log")

    def start(self) -> str:
        """Have the server running, and use it. Its URL."""
        if self.url:
            return self.url
        private_directory(self.data.parent, traversable=True)
        with self._claims.alone():
            account = Account.of_this_process()
            if account.other:
                open_passage(self.data, account)
                open_passage(programs.folder() / "postgres", account)
            cluster.prepare(self.data, account)
            self._claims.enter()
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
        with self._claims.alone():
            self._leave(Account.of_this_process())

    @property
    def pid(self) -> int | None:
        """The server's process, if it runs, whoever uses it."""
        found = postmaster.read(self.data)
        return found.pid if found else None

    @property
    def running_url(self) -> str | None:
        """Where it is, if it runs, whoever uses it. Not a claim: it may be stopped any time."""
        found = postmaster.read(self.data)
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
        if postmaster.read(self.data) is None:
            return None
        found = process.await_ready(self.data, self._log)
        log.info("embedded database taken over", directory=str(self.data), pid=found.pid)
        return found

    def _launched(self, account: Account) -> Postmaster:
        place = sockets.directory(self.data, account)
        if postmaster.forget_stale(self.data, place):
            log.info("a killed database recovers", directory=str(self.data))
        found = process.launch(self.data, place, self._log, account)
        log.info("embedded database started", directory=str(self.data), pid=found.pid)
        return found

    def _leave(self, account: Account) -> None:
        if self._claims.leave():
            process.stop(self.data, self._log)
            sockets.forget(self.data, account)
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
            words = process.last_words(self._log)
            raise StoreUnavailable(
                f"the database in {self.data} does not answer: {error}\n{words}"
            ) from error
        return _url(running, cluster.DATABASE)


def _url(running: Postmaster, database: str) -> str:
    place = quote(running.sockets, safe="/")
    return f"postgresql://{cluster.USER}@/{database}?host={place}&port={running.port}"
