"""A topology on its machines: the first phase, all of it; then the second, as time passes.

The second phase waits until every broker and every link of the first has been seen. What was
started is stopped in reverse order.

Brokers of a deployment let in those that name them as neighbours, and take their commands: each has
a user for links, whose password is made for the deployment and known to its brokers alone.
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
from penstock.cli.panda.ssh import SshMachine
from penstock.cli.panda.topology import (
    DeploymentTopology,
    LaunchCommand,
    TopologyStep,
    parse_launch_command,
)
from penstock.client.padres import PadresClient
from penstock.core.addresses import is_loopback
from penstock.core.config import environment_variable

#: As whom the brokers of a deployment connect to one another.
DEPLOYMENT_USER: Final = "deployment"


class Deployment:
    def __init__(
        self,
        topology: DeploymentTopology,
        access: MachineAccess,
        told: Callable[[str], None],
        *,
        always_ssh: bool = False,
        see_seconds: float = 300.0,
    ) -> None:
        """Machines other than this one are reached over SSH; this one too, if so told."""
        self.topology = topology
        self._access = access
        self._told = told
        self._always_ssh = always_ssh
        self._see_seconds = see_seconds
        self._machines: dict[str, Machine] = {}
        self._there: dict[str, TopologyStep] = {}  #: in the order they were started
        self._password = secrets.token_urlsafe(24)

    def machine(self, host: str) -> Machine:
        found = self._machines.get(host)
        if found is None:
            here = host == "localhost" or (host != "" and is_loopback(host))
            if here and not self._always_ssh:
                found = LocalMachine(self._access)
            else:
                found = SshMachine(host, self._access)
            self._machines[host] = found
        return found

    # On all machines.

    async def test(self) -> None:
        for host in self.topology.hosts:
            self._told(f"{host}: {await self.machine(host).test()}")

    async def install(self, package: str = "") -> None:
        for host in self.topology.hosts:
            await self.machine(host).install(package or self._access.package)
            self._told(f"{host}: installed")

    async def uninstall(self) -> None:
        for host in self.topology.hosts:
            await self.machine(host).uninstall()
            self._told(f"{host}: uninstalled")

    async def clean(self, everything: bool) -> None:
        if everything and self._there:
            raise DeploymentError("stop what runs first")
        for host in self.topology.hosts:
            await self.machine(host).clean(everything)

    # Phases.

    async def deploy(self) -> None:
        await self.first_phase()
        await self.second_phase()

    async def first_phase(self) -> None:
        for step in self.topology.first_phase:
            await self._take(step)
        launches = [
            parse_launch_command(step.command) for step in self.topology.first_phase if step.adds
        ]
        await wait_for_overlay(launches, self._told, self._see_seconds)
        self._told("phase 1 is complete")

    async def second_phase(self) -> None:
        loop = asyncio.get_running_loop()
        begun = loop.time()
        for step in self.topology.second_phase:
            await asyncio.sleep(max(0.0, begun + step.time - loop.time()))
            await self._take(step)
        self._told("phase 2 is complete")

    async def _take(self, step: TopologyStep) -> None:
        machine = self.machine(step.host)
        if step.adds:
            launched = parse_launch_command(step.command)
            words = list(launched.words)
            if words[:2] == ["penstock", "broker"] and "--data" not in words:
                words += ["--data", "data"]  # in its own folder
            environment = {}
            if launched.broker is not None and not launched.has("broker.overlay.user"):
                words += await self._links(machine, step.id, launched, words)
                environment = {environment_variable("broker.overlay.password"): self._password}
            await machine.start(step.id, words, environment)
            self._there[step.id] = step
            self._told(f"{step.host}: {step.id} started")
        else:
            await machine.stop(step.id)
            self._there.pop(step.id, None)
            self._told(f"{step.host}: {step.id} stopped")

    async def _links(
        self, machine: Machine, name: str, launched: LaunchCommand, words: list[str]
    ) -> list[str]:
        """What a broker is told besides: whom it lets in, and as whom it connects."""
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
        for identity, step in reversed(list(self._there.items())):
            await self.machine(step.host).stop(identity)
            del self._there[identity]
            self._told(f"{step.host}: {identity} stopped")

    async def dead(self) -> list[str]:
        """What should run and does not."""
        return [
            name
            for name, step in self._there.items()
            if not await self.machine(step.host).running(name)
        ]

    async def collect(self, into: Path, errors_only: bool = False) -> int:
        """Fetch what processes have written; returns how many had written something."""
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
        self._told(f"{written} files in {into}")
        return written

    async def close(self) -> None:
        for machine in self._machines.values():
            await machine.close()


# Whether an overlay is there: a client that asks all brokers how they are, until all links are up.
#
# It is connected to the first broker, and hears of the others through it; so what it has seen, the
# overlay carries.

#: Seconds between two questions.
POLL_SECONDS: Final = 0.5


async def wait_for_overlay(
    launches: Sequence[LaunchCommand], told: Callable[[str], None], seconds: float = 300.0
) -> None:
    """Return when every broker has been heard of, and each of its links is up."""
    brokers = [one for one in launches if one.broker is not None]
    if not brokers:
        return
    missing = set(_expected(brokers))
    try:
        async with asyncio.timeout(seconds):
            await _poll_brokers(str(brokers[0].broker), missing, told)
    except TimeoutError:
        listed = ", ".join(sorted(missing))
        raise DeploymentError(f"not there after {seconds:g} seconds: {listed}") from None


def _expected(brokers: Sequence[LaunchCommand]) -> list[str]:
    found = []
    for one in brokers:
        assert one.broker is not None
        found.append(one.broker.id)
        found += [f"{one.broker.id}-{other}" for other in one.neighbours]
    return found


async def _poll_brokers(url: str, missing: set[str], told: Callable[[str], None]) -> None:
    async with PadresClient(url, retry_seconds=60.0) as client:
        await client.advertise("[class,eq,NETWORK_DISCOVERY]")
        await client.subscribe("[class,eq,BROKER_INFO]")
        while missing:
            await client.publish("[class,NETWORK_DISCOVERY]", durable=False)
            with suppress(TimeoutError):
                async with asyncio.timeout(POLL_SECONDS):
                    while missing:
                        received = await client.receive()
                        _record_broker(json.loads(received.payload), missing, told)


def _record_broker(info: dict[str, Any], missing: set[str], told: Callable[[str], None]) -> None:
    name = info["brokerID"]
    if name in missing:
        missing.remove(name)
        told(f"broker {name} is there")
    for other, usable in info["links"].items():
        link = f"{name}-{other}"
        if usable and link in missing:
            missing.remove(link)
            told(f"link {link} is up")
