"""What one can type to a deployer: PANDA's commands.

`load`, `sshtest`, `install`, `uninstall`, `reinstall`, `upload`, `clean`, `deploy`, `stop`, `get`,
`auto`. A command that fails says why, and the next may be typed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from penstock.cli.panda.deployment import Deployment
from penstock.cli.panda.machine import DeploymentError
from penstock.cli.panda.topology import parse_topology
from penstock.core.errors import PenstockError, PreconditionFailed

HELP: Final = """\
load FILE             read a topology
sshtest               see whether all machines can be reached
install               put Penstock on all machines; uninstall, reinstall
upload [PACKAGE]      install this package, wheel or URL instead
deploy [auto]         run phase 1, then phase 2; auto installs first
stop [SECONDS]        stop everything, after so many seconds
get logs|errors       fetch what processes have written
clean all|log         remove everything of the deployment, or what was written
auto [PACKAGE]        sshtest, install, deploy
exit                  stop everything and leave; quit, bye"""


class DeployerExit(Exception):
    """No more commands."""


class DeployerCommands:
    def __init__(
        self,
        make: Callable[[str], Deployment],
        logs: Path,
        say: Callable[[str], None],
    ) -> None:
        """`make` turns the text of a topology into a deployment."""
        self._make = make
        self._logs = logs
        self._say = say
        self._deployment: Deployment | None = None
        self._verbs: dict[str, Callable[[list[str]], Awaitable[None]]] = {
            "help": self._help,
            **dict.fromkeys(("exit", "quit", "bye"), self._exit),
            "load": self._load,
            "sshtest": self._test,
            "install": self._install,
            "upload": self._install,
            "uninstall": self._uninstall,
            "reinstall": self._reinstall,
            "clean": self._clean,
            "deploy": self._deploy,
            "stop": self._stop,
            "get": self._get,
            "auto": self._auto,
        }

    async def run(self, line: str) -> None:
        words = line.split("#", 1)[0].split()
        if not words:
            return
        verb = self._verbs.get(words[0].lower())
        try:
            if verb is None:
                raise PreconditionFailed(f"there is no command {words[0]!r}; see help")
            await verb(words[1:])
        except (PenstockError, OSError) as error:
            self._say(f"error: {error}")

    @property
    def deployment(self) -> Deployment:
        if self._deployment is None:
            raise PreconditionFailed("load a topology first")
        return self._deployment

    async def _help(self, words: list[str]) -> None:
        self._say(HELP)

    async def _exit(self, words: list[str]) -> None:
        raise DeployerExit

    async def _load(self, words: list[str]) -> None:
        if len(words) != 1:
            raise PreconditionFailed("load FILE")
        text = await asyncio.to_thread(Path(words[0]).read_text)
        parse_topology(text, words[0])  # before anything is given up for it
        await self.close()
        self._deployment = self._make(text)
        self._say(f"{len(self._deployment.topology.steps)} steps")

    async def _test(self, words: list[str]) -> None:
        await self.deployment.test()

    async def _install(self, words: list[str]) -> None:
        await self.deployment.install(words[0] if words else "")

    async def _uninstall(self, words: list[str]) -> None:
        await self.deployment.uninstall()

    async def _reinstall(self, words: list[str]) -> None:
        await self.deployment.uninstall()
        await self.deployment.install()

    async def _clean(self, words: list[str]) -> None:
        if words not in (["all"], ["log"]):
            raise PreconditionFailed("clean all, or clean log")
        await self.deployment.clean(words == ["all"])

    async def _deploy(self, words: list[str]) -> None:
        if words == ["auto"]:
            await self.deployment.install()
        await self.deployment.deploy()

    async def _stop(self, words: list[str]) -> None:
        if words:
            try:
                await asyncio.sleep(float(words[0]))
            except ValueError:
                raise PreconditionFailed(f"{words[0]!r} is no number of seconds") from None
        await self.deployment.stop()

    async def _get(self, words: list[str]) -> None:
        if words not in (["logs"], ["errors"]):
            raise PreconditionFailed("get logs, or get errors")
        await self.deployment.collect(self._logs, errors_only=words == ["errors"])

    async def _auto(self, words: list[str]) -> None:
        await self._test([])
        await self._install(words)
        await self._deploy([])

    async def close(self) -> None:
        """Stop what runs."""
        if self._deployment is not None:
            try:
                await self._deployment.stop()
            except DeploymentError as error:
                self._say(f"error: {error}")
            await self._deployment.close()
            self._deployment = None
