"""The embedded server: who starts it, who stops it, and what it survives."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from penstock.core.errors import AccessRefused
from penstock_store import Database, EmbeddedServer, StoreNotReady, StoreUnavailable
from penstock_store.embedded import postmaster
from penstock_store.embedded import postmaster as process
from penstock_store.embedded import server as sockets
from penstock_store.embedded.account import ServerAccount
from tests.databases import grounds_of_its_own
from tests.fixtures import needed
from tests.store.servers import python_for

#: A process that uses a server until its standard input ends.
USER = """
import sys
from pathlib import Path
from penstock_store import Database, EmbeddedServer
with EmbeddedServer(Path(sys.argv[1])) as server, Database(server.url) as database:
    for statement in sys.argv[2:]:
        database.execute(statement)
    print(server.pid, flush=True)
    sys.stdin.read()
"""


@pytest.fixture(scope="module")
def made() -> Iterator[Path]:
    """The directory of a server that has run and stopped: making one takes seconds."""
    with grounds_of_its_own() as folder:
        with EmbeddedServer(folder / "pg"):
            pass
        yield folder / "pg"


@pytest.fixture
def nothing(grounds: Path) -> Iterator[Path]:
    """A place for a server; whatever a test leaves running there is stopped."""
    directory = grounds / "pg"
    yield directory
    process.stop_server(directory, grounds / "pg.log")


@pytest.fixture
def data(made: Path, nothing: Path) -> Path:
    """A copy of that directory."""
    subprocess.run(["cp", "--archive", str(made), str(nothing)], check=True)
    return nothing


def user_of(data: Path, *statements: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", USER, str(data), *statements],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def said(child: subprocess.Popen[str]) -> int:
    """The process id of its server, once it is ready."""
    assert child.stdout is not None
    return int(child.stdout.readline())


def ended(child: subprocess.Popen[str]) -> None:
    child.communicate(timeout=60)


def test_what_was_written_is_there_after_a_restart(data: Path) -> None:
    with EmbeddedServer(data) as server, Database(server.url) as database:
        database.execute("CREATE TABLE t AS SELECT 'there' AS word")

    with EmbeddedServer(data) as server, Database(server.url) as database:
        assert database.rows("SELECT word FROM t") == [{"word": "there"}]


def test_closing_stops_the_server(data: Path) -> None:
    server = EmbeddedServer(data)
    assert server.start() == server.running_url

    server.close()

    assert server.running_url is None


def test_two_users_share_one_server_and_the_last_stops_it(data: Path) -> None:
    first, second = EmbeddedServer(data), EmbeddedServer(data)
    assert first.start() == second.start()

    first.close()
    with Database(second.url) as database:
        assert database.rows("SELECT 1 AS one") == [{"one": 1}]
    second.close()

    assert second.pid is None


def test_processes_that_come_at_once_share_one_server(nothing: Path) -> None:
    children = [user_of(nothing) for _ in range(3)]

    assert len({said(child) for child in children}) == 1

    for child in children:
        ended(child)
    assert postmaster.read_pid_file(nothing) is None


def test_a_server_whose_process_was_killed_is_taken_over_and_stopped(data: Path) -> None:
    child = user_of(data, "CREATE TABLE t AS SELECT 1 AS n")
    pid = said(child)
    child.kill()
    ended(child)
    assert EmbeddedServer(data).pid == pid

    with EmbeddedServer(data) as server, Database(server.url) as database:
        assert server.pid == pid
        assert database.rows("SELECT n FROM t") == [{"n": 1}]

    assert server.pid is None


def test_a_killed_server_recovers_what_was_committed(data: Path) -> None:
    child = user_of(data, "CREATE TABLE t AS SELECT 1 AS n")
    pid = said(child)
    child.kill()
    os.kill(pid, signal.SIGKILL)
    ended(child)

    with EmbeddedServer(data) as server, Database(server.url) as database:
        assert server.pid != pid
        assert database.rows("SELECT n FROM t") == [{"n": 1}]


def test_a_server_that_ends_while_it_is_taken_over_is_started_again(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    child = user_of(data, "CREATE TABLE t AS SELECT 1 AS n")
    pid = said(child)
    child.kill()
    ended(child)
    wait_until_ready = postmaster.wait_until_ready

    def kill_when_ready(directory: Path, log: Path) -> postmaster.Postmaster:
        found = wait_until_ready(directory, log)
        os.kill(found.pid, signal.SIGKILL)
        return found

    monkeypatch.setattr(postmaster, "wait_until_ready", kill_when_ready)
    with EmbeddedServer(data) as server, Database(server.url) as database:
        assert server.pid != pid
        assert database.rows("SELECT n FROM t") == [{"n": 1}]


def test_a_stale_pid_that_is_anothers_now_is_not_believed(data: Path) -> None:
    with EmbeddedServer(data):
        lines = (data / postmaster.PID_FILE).read_text().splitlines()
    lines[0] = str(os.getpid())
    (data / postmaster.PID_FILE).write_text("\n".join(lines) + "\n")

    assert EmbeddedServer(data).pid is None
    with EmbeddedServer(data) as server:
        assert server.pid not in (None, os.getpid())


def test_the_file_of_a_server_with_processes_left_is_not_removed(nothing: Path) -> None:
    nothing.mkdir()
    (nothing / postmaster.PID_FILE).write_text("1\n")
    orphan = subprocess.Popen(["sleep", "60"], cwd=nothing)
    try:
        assert not postmaster.remove_stale_files(nothing, nothing)
    finally:
        orphan.kill()
        orphan.wait()
    assert postmaster.remove_stale_files(nothing, nothing)


def test_a_directory_that_was_not_finished_is_made_again(nothing: Path) -> None:
    half = nothing.with_name(".pg.new")
    half.mkdir(parents=True)
    (half / "PG_VERSION").write_text("18\n")

    with EmbeddedServer(nothing) as server, Database(server.url) as database:
        assert database.rows("SELECT 1 AS one") == [{"one": 1}]


def test_another_versions_directory_is_left_alone(nothing: Path) -> None:
    nothing.mkdir()
    (nothing / "PG_VERSION").write_text("16\n")

    with pytest.raises(StoreNotReady, match="is of PostgreSQL 16"):
        EmbeddedServer(nothing).start()


def test_a_directory_with_something_else_in_it_is_left_alone(nothing: Path) -> None:
    nothing.mkdir()
    (nothing / "holiday.jpg").touch()

    with pytest.raises(StoreNotReady, match="not a database"):
        EmbeddedServer(nothing).start()


def test_a_server_that_cannot_start_says_why(data: Path) -> None:
    with EmbeddedServer(data):
        pass
    with (data / "postgresql.conf").open("a") as configuration:
        configuration.write("shared_buffers = 'a lot'\n")

    with pytest.raises(StoreUnavailable, match="invalid value for parameter"):
        EmbeddedServer(data).start()


def test_a_path_may_have_anything_in_it(grounds: Path) -> None:
    data = grounds / 'it\'s "50 %", $HOME; ünï' / "pg"

    with EmbeddedServer(data) as server, Database(server.url) as database:
        assert database.rows("SELECT current_database() AS name") == [{"name": "penstock"}]


def test_a_path_too_long_for_a_socket_has_it_elsewhere(grounds: Path) -> None:
    data = grounds / ("long" * 20) / "pg"

    with EmbeddedServer(data) as server, Database(server.url) as database:
        assert str(data) not in server.url
        assert database.rows("SELECT 1 AS one") == [{"one": 1}]


def test_a_socket_directory_of_somebody_else_is_a_trap(grounds: Path) -> None:
    data = grounds / ("trap" * 20) / "pg"
    mine = ServerAccount.of_this_process()
    short = sockets.socket_directory(data, mine)
    try:
        short.chmod(0o777)
        with pytest.raises(AccessRefused, match="belongs to another user"):
            sockets.socket_directory(data, mine)
    finally:
        short.rmdir()


def test_nothing_listens_on_a_port(data: Path) -> None:
    with EmbeddedServer(data) as server, Database(server.url) as database:
        assert database.rows("SHOW listen_addresses") == [{"listen_addresses": ""}]


def test_only_the_servers_user_may_reach_the_socket(data: Path) -> None:
    with EmbeddedServer(data):
        assert stat.S_IMODE(data.stat().st_mode) == 0o700
        assert stat.S_IMODE((data / ".s.PGSQL.5432").stat().st_mode) == 0o700


def test_ctrl_c_in_a_terminal_does_not_reach_the_server(data: Path) -> None:
    with EmbeddedServer(data) as server:
        assert server.pid is not None
        assert os.getsid(server.pid) != os.getsid(0)


def test_closing_waits_for_nobody_who_is_idle(data: Path) -> None:
    with EmbeddedServer(data) as server:
        idle = psycopg.connect(server.url)
        idle.execute("SELECT 1")  # a transaction is open

    assert server.pid is None
    idle.close()


def test_threads_may_start_it_at_once(data: Path) -> None:
    servers = [EmbeddedServer(data) for _ in range(3)]
    threads = [threading.Thread(target=server.start) for server in servers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len({server.url for server in servers}) == 1
    for server in servers:
        server.close()
    assert postmaster.read_pid_file(data) is None


@pytest.mark.skipif(os.geteuid() != 0, reason="takes root to become another user")
def test_it_runs_as_an_ordinary_user(grounds: Path) -> None:
    nobody = 65534
    grounds.chmod(0o755)
    home = grounds / "home"
    home.mkdir()
    os.chown(home, nobody, nobody)
    python = needed(python_for, nobody)
    child = subprocess.run(
        [python, "-c", USER, str(home / "pg")],
        user=nobody,
        group=nobody,
        extra_groups=[],
        env={
            "PYTHONPATH": os.pathsep.join(
                path for path in sys.path if "site-packages" in path or path.endswith("/src")
            )
        },
        cwd="/",
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )

    assert child.returncode == 0, child.stderr
    assert (home / "pg").stat().st_uid == nobody
    assert postmaster.read_pid_file(home / "pg") is None
