"""Runs a topology on its machines: the first phase, then the second at its times.

The second phase starts when every broker and link of the first is up. Processes are stopped in
reverse order.

Brokers of a deployment accept links and commands from their neighbours: each has a user for links,
whose random password only the brokers of the deployment know.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from penstock.cli.panda.machine import (
    ERROR_LOG,
    OUTPUT_LOG,
    DeploymentError,
    LocalMachine,
    Machine,
    MachineAccess,
)
from penstock.cli.panda.topology import (
    DeploymentTopology,
    LaunchCommand,
    TopologyStep,
    parse_launch_command,
)
from penstock.client.padres import PadresClient
from penstock.core.addresses import is_loopback
from penstock.core.config import environment_variable

#: The user of links between brokers.
DEPLOYMENT_USER: Final = "deployment"
#: Seconds between two polls of the brokers.
POLL_SECONDS: Final = 0.5


class Deployment:
    def __init__(
        self,
        topology: DeploymentTopology,
        access: MachineAccess,
        echo: Callable[[str], None],
        *,
        always_ssh: bool = False,
        ready_seconds: float = 300.0,
    ) -> None:
        """Other machines are reached over SSH; with `always_ssh` this one too."""
        self.topology = topology
        self._access = access
        self._echo = echo
        self._always_ssh = always_ssh
        self._ready_seconds = ready_seconds
        self._machines: dict[str, Machine] = {}
        self._started: dict[str, TopologyStep] = {}  #: in order
        self._password = secrets.token_urlsafe(24)

    def machine(self, host: str) -> Machine:
        found = self._machines.get(host)
        if found is None:
            is_local = host == "localhost" or (host != "" and is_loopback(host))
            if is_local and not self._always_ssh:
                found = LocalMachine(self._access)
            else:
                from penstock.cli.panda.ssh import SshMachine  # needs the extra `ssh`

                found = SshMachine(host, self._access)
            self._machines[host] = found
        return found

    async def test(self) -> None:
        for host in self.topology.hosts:
            self._echo(f"{host}: {await self.machine(host).test()}")

    async def install(self, package: str = "") -> None:
        for host in self.topology.hosts:
            await self.machine(host).install(package or self._access.package)
            self._echo(f"{host}: installed")

    async def uninstall(self) -> None:
        for host in self.topology.hosts:
            await self.machine(host).uninstall()
            self._echo(f"{host}: uninstalled")

    async def clean(self, everything: bool) -> None:
        if everything and self._started:
            raise DeploymentError("processes are running: stop them first")
        for host in self.topology.hosts:
            await self.machine(host).clean(everything)

    async def deploy(self) -> None:
        await self.first_phase()
        await self.second_phase()

    async def first_phase(self) -> None:
        for step in self.topology.first_phase:
            await self._run_step(step)
        launches = [
            parse_launch_command(step.command) for step in self.topology.first_phase if step.adds
        ]
        await wait_for_overlay(launches, self._echo, self._ready_seconds)
        self._echo("phase 1 is complete")

    async def second_phase(self) -> None:
        loop = asyncio.get_running_loop()
        started = loop.time()
        for step in self.topology.second_phase:
            await asyncio.sleep(max(0.0, started + step.time - loop.time()))
            await self._run_step(step)
        self._echo("phase 2 is complete")

    async def _run_step(self, step: TopologyStep) -> None:
        machine = self.machine(step.host)
        if step.adds:
            launched = parse_launch_command(step.command)
            words = list(launched.words)
            if words[:2] == ["penstock", "broker"] and "--data" not in words:
                words += ["--data", "data"]  # in the folder of the process
            environment = {}
            if launched.broker is not None and not launched.has("broker.overlay.user"):
                words += await self._links(machine, step.id, launched, words)
                environment = {environment_variable("broker.overlay.password"): self._password}
            await machine.start(step.id, words, environment)
            self._started[step.id] = step
            self._echo(f"{step.host}: {step.id} started")
        else:
            await machine.stop(step.id)
            self._started.pop(step.id, None)
            self._echo(f"{step.host}: {step.id} stopped")

    async def _links(
        self, machine: Machine, name: str, launched: LaunchCommand, words: list[str]
    ) -> list[str]:
        """Settings for the links of a broker: the user, and the brokers that may connect."""
        assert launched.broker is not None, "only brokers are linked"
        others = [parse_launch_command(step.command) for step in self.topology.steps if step.adds]
        named_by = sorted(
            {one.broker.id for one in others if one.broker and launched.broker.id in one.neighbours}
        )
        if named_by:
            data = dict(pairwise(words))["--data"]
            add = ["penstock", "user", "add", DEPLOYMENT_USER, "--tag", "overlay", "--replace"]
            add += ["--password-stdin", "--data", data]
            await machine.run(name, add, f"{self._password}\n")
        settings = {
            "broker.overlay.user": DEPLOYMENT_USER,
            "broker.overlay.accept_links_from": ",".join(named_by),
            "broker.overlay.accept_commands_from": ",".join([*named_by, *launched.neighbours]),
        }
        return [
            word
            for key, value in settings.items()
            if not launched.has(key)
            for word in ("--set", f"{key}={value}")
        ]

    async def stop(self) -> None:
        for identity, step in reversed(list(self._started.items())):
            await self.machine(step.host).stop(identity)
            del self._started[identity]
            self._echo(f"{step.host}: {identity} stopped")

    async def dead(self) -> list[str]:
        """Processes that should run and do not."""
        return [
            name
            for name, step in self._started.items()
            if not await self.machine(step.host).running(name)
        ]

    async def collect(self, into: Path, errors_only: bool = False) -> int:
        """Fetches the logs of processes; returns how many are not empty."""
        files = (ERROR_LOG,) if errors_only else (OUTPUT_LOG, ERROR_LOG)
        written = 0
        for step in {step.id: step for step in self.topology.steps if step.adds}.values():
            for file in files:
                content = await self.machine(step.host).read(step.id, file)
                if content:
                    folder = into / step.id
                    folder.mkdir(parents=True, exist_ok=True)
                    (folder / file).write_bytes(content)
                    written += 1
        self._echo(f"{written} files in {into}")
        return written

    async def close(self) -> None:
        for machine in self._machines.values():
            await machine.close()


async def wait_for_overlay(
    launches: Sequence[LaunchCommand], echo: Callable[[str], None], seconds: float = 300.0
) -> None:
    """Returns when all brokers and links are up. A client of the first broker asks all of them, so
    the answers also show that the overlay works."""
    brokers = [one for one in launches if one.broker is not None]
    if not brokers:
        return
    missing = set(_expected(brokers))
    try:
        async with asyncio.timeout(seconds):
            await _poll_brokers(str(brokers[0].broker), missing, echo)
    except TimeoutError:
        listed = ", ".join(sorted(missing))
        raise DeploymentError(f"not up after {seconds:g} seconds: {listed}") from None


def _expected(brokers: Sequence[LaunchCommand]) -> list[str]:
    found = []
    for one in brokers:
        assert one.broker is not None
        found.append(one.broker.id)
        found += [f"{one.broker.id}-{other}" for other in one.neighbours]
    return found


async def _poll_brokers(url: str, missing: set[str], echo: Callable[[str], None]) -> None:
    async with PadresClient(url, retry_seconds=60.0) as client:
        await client.advertise("[class,eq,NETWORK_DISCOVERY]")
        await client.subscribe("[class,eq,BROKER_INFO]")
        while missing:
            await client.publish("[class,NETWORK_DISCOVERY]", durable=False)
            with suppress(TimeoutError):
                async with asyncio.timeout(POLL_SECONDS):
                    while missing:
                        received = await client.receive()
                        _record_broker(json.loads(received.payload), missing, echo)


def _record_broker(info: dict[str, Any], missing: set[str], echo: Callable[[str], None]) -> None:
    name = info["brokerID"]
    if name in missing:
        missing.remove(name)
        echo(f"broker {name} is up")
    for other, usable in info["links"].items():
        link = f"{name}-{other}"
        if usable and link in missing:
            missing.remove(link)
            echo(f"link {link} is up")
