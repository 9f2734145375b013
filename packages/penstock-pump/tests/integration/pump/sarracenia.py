"""Sarracenia's own programs, v2 and sr3, each with a home of its own.

They live in an environment of their own (`scripts/peers` makes it): they bring a package `tests`.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.fixtures import missing
from tests.paths import PEERS
from tests.peers import Broker, PeerMissing

SECONDS = 90.0
PROGRAMS = PEERS / "sarracenia" / "bin"


class Sarracenia:
    """`folder` is what the programs call their configuration: `sr3`, or v2's `sarra`."""

    def __init__(self, home: Path, broker: Broker, folder: str, program: str) -> None:
        if not (PROGRAMS / program).exists():
            missing(PeerMissing(f"{program} is not installed: scripts/peers does it"))
        home.mkdir()
        self._home = home
        self._port = broker.port
        self._conf = home / "config" / folder
        self._conf.mkdir(parents=True)
        credential = f"amqp://guest:guest@127.0.0.1:{broker.port}/\n"
        (self._conf / "credentials.conf").write_text(credential)

    @property
    def broker(self) -> str:
        return f"amqp://guest@127.0.0.1:{self._port}/"

    def configure(self, component: str, text: str) -> None:
        folder = self._conf / component
        folder.mkdir(exist_ok=True)
        (folder / "t.conf").write_text(text)

    async def start(self, program: str, *arguments: str) -> asyncio.subprocess.Process:
        environment = {
            **os.environ,
            "HOME": str(self._home),
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
    async def running(self, program: str, *arguments: str) -> AsyncIterator[None]:
        process = await self.start(program, *arguments)
        try:
            yield
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            await process.wait()

    @property
    def log(self) -> str:
        return (self._home / "log").read_text(errors="replace")[-4000:]
