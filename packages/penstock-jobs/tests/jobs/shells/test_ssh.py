"""Commands over SSH, against a real sshd: what holds here holds there."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from penstock.core.errors import ConfigurationError
from penstock_jobs.errors import CommandError
from penstock_jobs.shells.ssh import SshFolder, SshShell
from tests.fixtures import missing
from tests.jobs.shells.processes import alive, cancelled, script, until, until_gone
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


async def test_a_command_that_is_cancelled_is_asked_to_end(folder: SshFolder) -> None:
    program = "trap 'echo tidying; exit 3' TERM; echo begun; sleep 60 & wait"
    assert await cancelled(folder, script(program)) == ["begun", "tidying"]


async def test_a_command_that_does_not_end_when_asked_is_killed(folder: SshFolder) -> None:
    program = "trap 'echo asked' TERM; echo $$; while true; do sleep 60 & wait; done"
    begun, *asked = await cancelled(folder, script(program), kill="asked")
    # A child that was forked but had not yet become `sleep` may answer as well.
    assert set(asked) == {"asked"}
    await until_gone(int(begun))


async def test_what_a_command_leaves_behind_is_ended(folder: SshFolder) -> None:
    done = await folder.run(script("sleep 60 >/dev/null 2>&1 & echo $!"))
    assert done.succeeded
    await until_gone(int(done.output))


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

async def work():
    shell = SshShell(sys.argv[1], keys=[Path(sys.argv[2])], known_hosts=Path(sys.argv[3]))
    async with shell.folder() as folder:
        print(folder.path, flush=True)
        told = lambda line: print(line, flush=True)
        await folder.run(["sh", "-c", "echo $$; sleep 60"], told)

asyncio.run(work())
"""
    arguments = [sys.executable, "-c", worker, sshd.url, str(sshd.key), str(sshd.known_hosts)]
    process = subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    folder, pid = Path(process.stdout.readline().strip()), int(process.stdout.readline())
    process.kill()
    process.wait()
    await until_gone(pid)
    await until(lambda: not folder.exists())


#: A session of its own whose parents are gone.
DAEMON = "(setsid sh -c 'echo $$; exec sleep 600 >/dev/null 2>&1' &) ; sleep %d"


async def test_a_daemon_ends_with_the_command_that_started_it(folder: SshFolder) -> None:
    done = await folder.run(script(DAEMON % 1))
    assert done.succeeded
    assert not alive(int(done.output))


async def test_a_session_without_its_environment_ends_with_its_parent(folder: SshFolder) -> None:
    inner = 'echo $$; trap "echo asked" TERM; while true; do sleep 600 & wait; done'
    program = f"setsid env -i sh -c '{inner}' & wait"
    begun, *_ = await cancelled(folder, script(program), kill="asked")
    assert not alive(int(begun))


async def test_a_daemon_ends_when_the_command_is_cancelled(folder: SshFolder) -> None:
    (begun,) = await cancelled(folder, script(DAEMON % 600))
    assert not alive(int(begun))
