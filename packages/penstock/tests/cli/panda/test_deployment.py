"""Overlays that are deployed for real, on this machine: as its own processes, and over SSH."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from zipfile import ZipFile

import pytest

from penstock.cli.panda.commands import DeployerCommands, DeployerExit
from penstock.cli.panda.deployment import Deployment
from penstock.cli.panda.machine import DeploymentError, MachineAccess
from penstock.cli.panda.topology import parse_topology
from tests.cli.command import PENSTOCK, descendants, ended
from tests.fixtures import missing
from tests.peers import PeerMissing, free_port
from tests.sshd import Sshd

#: Fast enough for a test, whatever the machine is at.
RETRY = "-rp 0.2 -rl 0"


def topology() -> str:
    """Two brokers, and a client that publishes when both are linked."""
    ports = free_port(), free_port()
    first, second = (f"padres://127.0.0.1:{port}/B{n}" for n, port in enumerate(ports, 1))
    return f"""
    0    ADD    B1  127.0.0.1  startbroker -uri {first} {RETRY}
    0    ADD    B2  127.0.0.1  startbroker -uri {second} -n {first} {RETRY}
    0.1  ADD    c   127.0.0.1  sh -c 'echo hello; echo oops >&2; sleep 600'
    0.2  REMOVE c   127.0.0.1
    """


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


async def deployed(text: str, access: MachineAccess, logs: Path, always_ssh: bool) -> list[str]:
    """Deploy, look, stop, collect; what was told."""
    told: list[str] = []
    deployment = Deployment(parse_topology(text), access, told.append, always_ssh=always_ssh)
    try:
        await deployment.test()
        await deployment.deploy()
        assert await deployment.dead() == []
    finally:
        await deployment.stop()
        await deployment.collect(logs)
        await deployment.close()
    return told


def check(told: list[str], logs: Path) -> None:
    complete = told.index("phase 1 is complete")
    for seen in ("broker B1 is up", "broker B2 is up", "link B2-B1 is up"):
        assert told.index(seen) < complete
    assert complete < told.index("127.0.0.1: c started") < told.index("127.0.0.1: c stopped")
    assert told.index("127.0.0.1: B2 stopped") < told.index("127.0.0.1: B1 stopped")
    assert (logs / "c" / "output.log").read_text() == "hello\n"
    assert (logs / "c" / "errors.log").read_text() == "oops\n"
    assert "penstock broker ready" in (logs / "B1" / "output.log").read_text()
    assert all("password" not in line for line in told)


async def test_on_this_machine(tmp_path: Path) -> None:
    access = MachineAccess(home=str(tmp_path / "home"))
    told = await deployed(topology(), access, tmp_path / "logs", always_ssh=False)
    check(told, tmp_path / "logs")


@pytest.mark.peer
async def test_over_ssh(tmp_path: Path, sshd: Sshd) -> None:
    access = MachineAccess(
        home=str(tmp_path / "home"),
        login=sshd.user,
        port=sshd.port,
        key=sshd.key,
        known_hosts=sshd.known_hosts,
        program=(sys.executable, "-m", "penstock"),
    )
    told = await deployed(topology(), access, tmp_path / "logs", always_ssh=True)
    check(told, tmp_path / "logs")


@pytest.mark.slow  # an environment is made, and pip works in it
@pytest.mark.peer
async def test_installed_over_ssh_from_a_file_that_is_here(tmp_path: Path, sshd: Sshd) -> None:
    home, said = tmp_path / "home", list[str]()
    access = MachineAccess(
        home=str(home),
        login=sshd.user,
        port=sshd.port,
        key=sshd.key,
        known_hosts=sshd.known_hosts,
        python=sys.executable,
    )
    file = tmp_path / "topology"
    file.write_text("0 ADD a 127.0.0.1 penstock says hello")

    def make(text: str) -> Deployment:
        return Deployment(parse_topology(text), access, said.append, always_ssh=True)

    commands = DeployerCommands(make, tmp_path / "logs", said.append)
    for line in (f"load {file}", f"auto {standing_in(tmp_path)}"):
        await commands.run(line)
    assert said[-3:] == ["127.0.0.1: a started", "phase 1 is complete", "phase 2 is complete"]
    async with asyncio.timeout(60):
        while await commands.deployment.dead() != ["a"]:  # noqa: ASYNC110 - processes tell nobody
            await asyncio.sleep(0.05)
    for line in ("stop", "get logs", "uninstall"):
        await commands.run(line)

    assert (tmp_path / "logs" / "a" / "output.log").read_text() == "says hello\n"
    assert not (home / "environment").exists()
    await commands.close()


@pytest.mark.peer
async def test_a_machine_where_nothing_can_be_installed_says_why(
    tmp_path: Path, sshd: Sshd
) -> None:
    access = MachineAccess(
        home=str(tmp_path),
        port=sshd.port,
        key=sshd.key,
        known_hosts=sshd.known_hosts,
        python="no-such-python",
    )
    deployment = Deployment(parse_topology("0 ADD a 127.0.0.1 x"), access, print, always_ssh=True)
    try:
        with pytest.raises(DeploymentError, match=r"127\.0\.0\.1: .*no-such-python"):
            await deployment.install()
    finally:
        await deployment.close()


def standing_in(folder: Path) -> Path:
    """A wheel whose `penstock` says what it is told to: the real one would bring half the world."""
    file = folder / "standing_in-1.0-py3-none-any.whl"
    about = "standing_in-1.0.dist-info"
    with ZipFile(file, "w") as wheel:
        wheel.writestr("standing_in.py", "import sys\ndef say(): print(*sys.argv[1:])\n")
        wheel.writestr(
            f"{about}/METADATA", "Metadata-Version: 2.1\nName: standing_in\nVersion: 1.0"
        )
        wheel.writestr(
            f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any"
        )
        wheel.writestr(
            f"{about}/entry_points.txt", "[console_scripts]\npenstock = standing_in:say\n"
        )
        wheel.writestr(f"{about}/RECORD", "")
    return file


@pytest.mark.peer
async def test_a_machine_that_cannot_be_reached_is_said(tmp_path: Path, sshd: Sshd) -> None:
    access = MachineAccess(
        home=str(tmp_path), port=free_port(), key=sshd.key, known_hosts=sshd.known_hosts
    )
    deployment = Deployment(parse_topology("0 ADD a 127.0.0.1 x"), access, print, always_ssh=True)
    with pytest.raises(DeploymentError, match=r"127\.0\.0\.1:\d+: no SSH connection"):
        await deployment.test()


async def test_brokers_that_do_not_come_are_named(tmp_path: Path) -> None:
    port = free_port()
    text = f"""
    0 ADD B1 127.0.0.1 startbroker -uri padres://127.0.0.1:{port}/B1 -n padres://127.0.0.1:1/B9
    """
    deployment = Deployment(
        parse_topology(text), MachineAccess(home=str(tmp_path)), lambda _: None, ready_seconds=2
    )
    try:
        with pytest.raises(DeploymentError, match=r"not up after 2 seconds: .*B1-B9"):
            await deployment.deploy()
    finally:
        await deployment.close()


async def test_a_command_that_is_not_there_is_said(tmp_path: Path) -> None:
    text = "0 ADD a 127.0.0.1 no-such-program"
    deployment = Deployment(parse_topology(text), MachineAccess(home=str(tmp_path)), print)
    with pytest.raises(DeploymentError, match="a: cannot run 'no-such-program'"):
        await deployment.deploy()


# What one can type.


def prompt(tmp_path: Path) -> tuple[DeployerCommands, list[str]]:
    said: list[str] = []

    def make(text: str) -> Deployment:
        access = MachineAccess(home=str(tmp_path / "home"))
        return Deployment(parse_topology(text), access, said.append)

    return DeployerCommands(make, tmp_path / "logs", said.append), said


async def test_a_deployment_can_be_typed_step_by_step(tmp_path: Path) -> None:
    commands, said = prompt(tmp_path)
    file = tmp_path / "topology"
    file.write_text("0 ADD a 127.0.0.1 sh -c 'echo hello; sleep 600'")
    for line in (f"load {file}", "sshtest", "install", "deploy", "clean all", "# nothing", ""):
        await commands.run(line)
    assert said[-1] == "error: processes are running: stop them first"
    output = tmp_path / "home" / "a" / "output.log"
    async with asyncio.timeout(60):
        while output.read_text() != "hello\n":  # noqa: ASYNC110 - processes tell nobody
            await asyncio.sleep(0.01)
    for line in ("STOP 0.01", "get logs", "get errors", "clean log", "clean all"):
        await commands.run(line)
    assert not [one for one in said if one.startswith("error") and "stop them first" not in one]
    assert (tmp_path / "logs" / "a" / "output.log").read_text() == "hello\n"
    assert not (tmp_path / "home").exists()
    with pytest.raises(DeployerExit):
        await commands.run("bye")
    await commands.close()


async def test_a_command_that_fails_says_why_and_the_next_may_be_typed(tmp_path: Path) -> None:
    commands, said = prompt(tmp_path)
    for line in ("dance", "deploy", "load", "load /no/such/file", "help"):
        await commands.run(line)
    assert said[0] == "error: unknown command 'dance': see help"
    assert said[1] == "error: load a topology first"
    assert said[2] == "error: load FILE"
    assert "No such file" in said[3]
    assert "sshtest" in said[4]


def test_what_was_deployed_here_ends_with_a_deployment_that_was_killed(tmp_path: Path) -> None:
    file = tmp_path / "topology"
    file.write_text("0 ADD c 127.0.0.1 sleep 600\n")
    command = [*PENSTOCK, "deploy", str(file), "--home", str(tmp_path / "home")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as deployment:
        assert deployment.stdout is not None
        assert deployment.stdout.readline() == "127.0.0.1: c started\n"
        started = descendants(deployment.pid)
        deployment.kill()
    assert len(started) == 2  # with the guardian
    assert all(ended(pid) for pid in started)
