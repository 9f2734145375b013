"""A topology on its machines: the first phase, all of it; then the second, as time passes.

The second phase waits until every broker and every link of the first has been seen. What was
started is stopped in reverse order.

Brokers of a deployment let in those that name them as neighbours, and take their commands: each has
a user for links, whose password is made for the deployment and known to its brokers alone.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Final

from penstock.cli.panda.local import LocalPlace
from penstock.cli.panda.places import ERRORS, OUTPUT, Access, DeploymentError, Place
from penstock.cli.panda.ssh import SshPlace
from penstock.cli.panda.startbroker import Launch, launch
from penstock.cli.panda.topology import Step, Topology
from penstock.cli.panda.watching import see_all
from penstock.core.addresses import is_loopback
from penstock.core.config import variable

#: As whom the brokers of a deployment connect to one another.
USER: Final = "deployment"


class Deployment:
    def __init__(
        self,
        topology: Topology,
        access: Access,
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
        self._places: dict[str, Place] = {}
        self._there: dict[str, Step] = {}  #: in the order they were started
        self._password = secrets.token_urlsafe(24)

    def place(self, host: str) -> Place:
        found = self._places.get(host)
        if found is None:
            here = host == "localhost" or (host != "" and is_loopback(host))
            if here and not self._always_ssh:
                found = LocalPlace(self._access)
            else:
                found = SshPlace(host, self._access)
            self._places[host] = found
        return found

    # On all machines.

    async def test(self) -> None:
        for host in self.topology.hosts:
            self._told(f"{host}: {await self.place(host).test()}")

    async def install(self, package: str = "") -> None:
        for host in self.topology.hosts:
            await self.place(host).install(package or self._access.package)
            self._told(f"{host}: installed")

    async def uninstall(self) -> None:
        for host in self.topology.hosts:
            await self.place(host).uninstall()
            self._told(f"{host}: uninstalled")

    async def clean(self, everything: bool) -> None:
        if everything and self._there:
            raise DeploymentError("stop what runs first")
        for host in self.topology.hosts:
            await self.place(host).clean(everything)

    # Phases.

    async def deploy(self) -> None:
        await self.first_phase()
        await self.second_phase()

    async def first_phase(self) -> None:
        for step in self.topology.first_phase:
            await self._take(step)
        launches = [launch(step.command) for step in self.topology.first_phase if step.adds]
        await see_all(launches, self._told, self._see_seconds)
        self._told("phase 1 is complete")

    async def second_phase(self) -> None:
        loop = asyncio.get_running_loop()
        begun = loop.time()
        for step in self.topology.second_phase:
            await asyncio.sleep(max(0.0, begun + step.time - loop.time()))
            await self._take(step)
        self._told("phase 2 is complete")

    async def _take(self, step: Step) -> None:
        place = self.place(step.host)
        if step.adds:
            launched = launch(step.command)
            words = list(launched.words)
            if words[:2] == ["penstock", "broker"] and "--data" not in words:
                words += ["--data", "data"]  # in its own folder
            environment = {}
            if launched.broker is not None and not launched.has("broker.overlay.user"):
                words += await self._links(place, step.id, launched, words)
                environment = {variable("broker.overlay.password"): self._password}
            await place.start(step.id, words, environment)
            self._there[step.id] = step
            self._told(f"{step.host}: {step.id} started")
        else:
            await place.stop(step.id)
            self._there.pop(step.id, None)
            self._told(f"{step.host}: {step.id} stopped")

    async def _links(
        self, place: Place, name: str, launched: Launch, words: list[str]
    ) -> list[str]:
        """What a broker is told besides: whom it lets in, and as whom it connects."""
        assert launched.broker is not None, "only brokers are linked"
        others = [launch(step.command) for step in self.topology.steps if step.adds]
        named_by = sorted(
            {one.broker.id for one in others if one.broker and launched.broker.id in one.neighbours}
        )
        if named_by:
            data = dict(pairwise(words))["--data"]
            add = ["penstock", "user", "add", USER, "--tag", "overlay", "--replace"]
            add += ["--password-stdin", "--data", data]
            await place.run(name, add, f"{self._password}\n")
        settings = {
            "broker.overlay.user": USER,
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
            await self.place(step.host).stop(identity)
            del self._there[identity]
            self._told(f"{step.host}: {identity} stopped")

    async def dead(self) -> list[str]:
        """What should run and does not."""
        return [
            name
            for name, step in self._there.items()
            if not await self.place(step.host).running(name)
        ]

    async def collect(self, into: Path, errors_only: bool = False) -> int:
        """Fetch what processes have written; returns how many had written something."""
        files = (ERRORS,) if errors_only else (OUTPUT, ERRORS)
        written = 0
        for step in {step.id: step for step in self.topology.steps if step.adds}.values():
            for file in files:
                content = await self.place(step.host).read(step.id, file)
                if content:
                    folder = into / step.id
                    folder.mkdir(parents=True, exist_ok=True)
                    (folder / file).write_bytes(content)
                    written += 1
        self._told(f"{written} files in {into}")
        return written

    async def close(self) -> None:
        for place in self._places.values():
            await place.close()
