"""Sarracenia's own programs, v2 and sr3, each with a home of its own.

They live in an environment of their own (`scripts/peers` makes it): they bring a package `tests`.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from pathlib import Path
from typing import cast

from tests.fixtures import missing
from tests.paths import PEERS
from tests.peers import Broker, MqttBroker, PeerMissing

SECONDS = 90.0
PROGRAMS = PEERS / "sarracenia" / "bin"


class Sarracenia:
    """`folder` is what the programs call their configuration: `sr3`, or v2's `sarra`."""

    def __init__(
        self,
        home: Path,
        broker: Broker | MqttBroker,
        folder: str,
        program: str,
        *,
        mqtt: bool = False,
    ) -> None:
        if not (PROGRAMS / program).exists():
            missing(PeerMissing(f"{program} is not installed: scripts/peers does it"))
        home.mkdir()
        self._home = home
        port = cast(MqttBroker, broker).mqtt_port if mqtt else cast(Broker, broker).port
        self._address = ("mqtt" if mqtt else "amqp", f"127.0.0.1:{port}/")
        self._conf = home / "config" / folder
        self._conf.mkdir(parents=True)
        self.add_credential("{}://guest:guest@{}".format(*self._address))

    def add_credential(self, line: str) -> None:
        with (self._conf / "credentials.conf").open("a") as file:
            file.write(f"{line}\n")

    @property
    def broker(self) -> str:
        return "{}://guest@{}".format(*self._address)

    def configure(self, component: str, text: str, name: str = "t") -> None:
        folder = self._conf / component
        folder.mkdir(exist_ok=True)
        (folder / f"{name}.conf").write_text(text)

    async def start(self, program: str, *arguments: str) -> asyncio.subprocess.Process:
        environment = {
            **os.environ,
            "HOME": str(self._home),
            "PYTHONPATH": str(Path(__file__).with_name("sr3_repair")),
            "XDG_CONFIG_HOME": str(self._home / "config"),
            "XDG_CACHE_HOME": str(self._home / "cache"),
        }
        with (self._home / "log").open("ab") as log:
            return await asyncio.create_subprocess_exec(
                str(PROGRAMS / program),
                *arguments,
                env=environment,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    async def run(self, program: str, *arguments: str) -> None:
        process = await self.start(program, *arguments)
        async with asyncio.timeout(SECONDS):
            assert await process.wait() == 0, self.log

    @asynccontextmanager
    async def running(
        self, program: str, *arguments: str, end: signal.Signals = signal.SIGKILL
    ) -> AsyncIterator[None]:
        process = await self.start(program, *arguments)
        try:
            yield
        finally:
            with suppress(ProcessLookupError):  # it ended by itself: its log tells why
                os.killpg(process.pid, end)
            await process.wait()

    def running_component(
        self, component: str, name: str = "t", end: signal.Signals = signal.SIGKILL
    ) -> AbstractAsyncContextManager[None]:
        """As `sr3 start` runs it: in the foreground, sr3 does not receive from MQTT."""
        (module,) = PROGRAMS.parent.glob("lib/python3*/site-packages/sarracenia/instance.py")
        arguments = ("--no", "1", "start", f"{component}/{name}")
        return self.running("python", str(module), *arguments, end=end)

    def component_log(self, component: str, name: str = "t") -> str:
        path = self._home / "cache" / "sr3" / "log" / f"{component}_{name}_01.log"
        return path.read_text(errors="replace") if path.exists() else ""

    @property
    def log(self) -> str:
        return self.whole_log[-4000:]

    @property
    def whole_log(self) -> str:
        return (self._home / "log").read_text(errors="replace")
