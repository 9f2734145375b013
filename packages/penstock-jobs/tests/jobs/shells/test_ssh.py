"""Commands over SSH, against a real sshd: what holds here holds there."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from penstock.core.errors import ConfigurationError
from penstock_jobs.errors import CommandError
from penstock_jobs.shells.shell import TimeLimits
from penstock_jobs.shells.ssh import SshFolder, SshShell
from tests.fixtures import missing
from tests.peers import PeerMissing
from tests.sshd import Sshd

pytestmark = pytest.mark.peer


@pytest.fixture(scope="module")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    try:
        server = Sshd(tmp_path_factory.mktemp("sshd"))
    except PeerMissing as peer:
        missing(peer)
        raise
    server.start()
    yield server
    server.stop()


@pytest.fixture
async def shell(sshd: Sshd) -> AsyncIterator[SshShell]:
    opened = SshShell(sshd.url, keys=[sshd.key], known_hosts=sshd.known_hosts)
    yield opened
    await opened.close()


@pytest.fixture
async def folder(shell: SshShell) -> AsyncIterator[SshFolder]:
    async with shell.folder() as opened:
        yield opened


def script(text: str) -> list[str]:
    return ["sh", "-c", text]


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not holds():  # noqa: ASYNC110 - other processes tell nobody
            await asyncio.sleep(0.02)


async def test_lines_are_told_as_they_come_and_kept(folder: SshFolder) -> None:
    told: list[str] = []
    done = await folder.run(script("echo one; echo oops >&2; printf two"), told.append)
    assert told == ["one", "two"]
    assert (done.status, done.output, done.errors) == (0, "one\ntwo", "oops\n")


async def test_a_failure_has_its_status(folder: SshFolder) -> None:
    assert (await folder.run(script("exit 3"))).status == 3
    assert (await folder.run(["./ichnaea"])).status == 127


async def test_words_are_given_as_they_are(folder: SshFolder) -> None:
    words = ["a b", "$HOME", "; rm -rf x", "*", "'", '"', "ä"]
    done = await folder.run(["printf", "%s|", *words])
    assert done.output == "".join(f"{word}|" for word in words)


async def test_files_are_where_the_command_is(folder: SshFolder) -> None:
    path = await folder.write("in/data.csv", b"1;2\n")
    assert (await folder.run(script(f"cat in/data.csv {path} > out"))).succeeded
    assert await folder.read("out") == b"1;2\n1;2\n"
    with pytest.raises(CommandError, match="none: No such file"):
        await folder.read("none")


async def test_the_folder_is_gone_when_the_work_is(shell: SshShell) -> None:
    async with shell.folder() as folder:
        await folder.write("x", b"")
        place = Path(folder.path)
        assert place.exists()
    assert not place.exists()


async def test_a_command_that_takes_too_long_is_asked_to_end(folder: SshFolder) -> None:
    program = "trap 'echo tidying; exit 3' TERM; echo begun; sleep 60 & wait"
    done = await folder.run(script(program), limits=TimeLimits(soft=1.5))
    assert (done.status, done.output) == (3, "begun\ntidying\n")
    assert done.reason == "ended after 1.5 seconds"


async def test_a_command_that_does_not_end_when_asked_is_ended(folder: SshFolder) -> None:
    program = "trap '' TERM; echo $$; while true; do sleep 60; done"
    done = await folder.run(script(program), limits=TimeLimits(soft=1.5, grace=0.2))
    assert done.status == -signal.SIGKILL
    await until(lambda: not alive(int(done.output)))


async def test_what_a_command_leaves_behind_is_ended(folder: SshFolder) -> None:
    done = await folder.run(script("sleep 60 >/dev/null 2>&1 & echo $!"))
    assert done.succeeded
    await until(lambda: not alive(int(done.output)))


async def test_cancelling_ends_the_command_first(folder: SshFolder) -> None:
    begun: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    running = asyncio.create_task(
        folder.run(script("echo $$; sleep 60"), lambda line: begun.set_result(int(line)))
    )
    pid = await begun
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await until(lambda: not alive(pid))


async def test_a_host_that_is_not_known_is_refused(sshd: Sshd, tmp_path: Path) -> None:
    nobody = tmp_path / "known_hosts"
    nobody.write_text("")
    shell = SshShell(sshd.url, keys=[sshd.key], known_hosts=nobody)
    with pytest.raises(CommandError, match="unknown host key"):
        async with shell.folder():
            pass


async def test_a_user_that_is_not_let_in_is_told(sshd: Sshd, tmp_path: Path) -> None:
    import asyncssh

    stranger = tmp_path / "key"
    stranger.write_bytes(asyncssh.generate_private_key("ssh-ed25519").export_private_key())
    shell = SshShell(sshd.url, keys=[stranger], known_hosts=sshd.known_hosts)
    with pytest.raises(CommandError, match="no SSH connection"):
        async with shell.folder():
            pass


async def test_a_machine_that_does_not_answer_is_told() -> None:
    with pytest.raises(CommandError, match=r"127\.0\.0\.1:1: no SSH connection"):
        async with SshShell("ssh://127.0.0.1:1").folder():
            pass


@pytest.mark.parametrize("url", ["", "host", "http://host", "ssh://"])
async def test_a_url_of_another_kind_is_refused(url: str) -> None:
    with pytest.raises(ConfigurationError, match="the form is ssh://"):
        SshShell(url)


async def test_nothing_is_left_there_when_the_worker_is_killed(sshd: Sshd) -> None:
    worker = """
import asyncio, sys
from pathlib import Path
from penstock_jobs.shells.ssh import SshShell
from penstock_jobs.shells.shell import TimeLimits

async def work():
    shell = SshShell(sys.argv[1], keys=[Path(sys.argv[2])], known_hosts=Path(sys.argv[3]))
    async with shell.folder() as folder:
        print(folder.path, flush=True)
        told = lambda line: print(line, flush=True)
        await folder.run(["sh", "-c", "echo $$; sleep 60"], told, TimeLimits(soft=50, grace=0.2))

asyncio.run(work())
"""
    arguments = [sys.executable, "-c", worker, sshd.url, str(sshd.key), str(sshd.known_hosts)]
    process = subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    folder, pid = Path(process.stdout.readline().strip()), int(process.stdout.readline())
    process.kill()
    process.wait()
    await until(lambda: not alive(pid))
    await until(lambda: not folder.exists())


#: A session of its own whose parents are gone.
DAEMON = "(setsid sh -c 'echo $$; exec sleep 600 >/dev/null 2>&1' &) ; sleep %d"


async def test_a_daemon_ends_with_the_command_that_started_it(folder: SshFolder) -> None:
    done = await folder.run(script(DAEMON % 1))
    assert done.succeeded
    assert not alive(int(done.output))


async def test_a_daemon_ends_when_the_time_is_over(folder: SshFolder) -> None:
    done = await folder.run(script(DAEMON % 600), limits=TimeLimits(soft=3.0, grace=0.2))
    assert done.reason
    assert not alive(int(done.output))


async def test_a_session_without_its_environment_ends_with_its_parent(folder: SshFolder) -> None:
    program = "setsid env -i sh -c 'echo $$; trap : TERM; while true; do sleep 600; done' & wait"
    done = await folder.run(script(program), limits=TimeLimits(hard=3.0, grace=0.2))
    assert done.reason
    assert not alive(int(done.output))


async def test_a_daemon_ends_when_the_command_is_cancelled(folder: SshFolder) -> None:
    begun: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    running = asyncio.create_task(
        folder.run(script(DAEMON % 600), lambda line: begun.set_result(int(line)))
    )
    pid = await begun
    assert alive(pid)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert not alive(pid)
