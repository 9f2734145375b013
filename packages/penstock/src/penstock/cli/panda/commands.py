"""The commands of PANDA's deployer, see `HELP`. An error of a command is printed."""

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
sshtest               test the connection to all machines
install               install Penstock on all machines; also uninstall, reinstall
upload [PACKAGE]      install this package, wheel or URL instead
deploy [auto]         run phase 1, then phase 2; auto installs first
stop [SECONDS]        stop all processes, after this time
get logs|errors       fetch the output of processes
clean all|log         remove the deployment, or the output of processes
auto [PACKAGE]        sshtest, install, deploy
exit                  stop all processes and exit; also quit, bye"""


class DeployerExit(Exception):
    """`exit` was typed."""


class DeployerCommands:
    def __init__(
        self,
        make: Callable[[str], Deployment],
        logs: Path,
        echo: Callable[[str], None],
    ) -> None:
        """`make` creates a deployment from the text of a topology."""
        self._make = make
        self._logs = logs
        self._echo = echo
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
                raise PreconditionFailed(f"unknown command {words[0]!r}: see help")
            await verb(words[1:])
        except (PenstockError, OSError) as error:
            self._echo(f"error: {error}")

    @property
    def deployment(self) -> Deployment:
        if self._deployment is None:
            raise PreconditionFailed("load a topology first")
        return self._deployment

    async def _help(self, words: list[str]) -> None:
        self._echo(HELP)

    async def _exit(self, words: list[str]) -> None:
        raise DeployerExit

    async def _load(self, words: list[str]) -> None:
        if len(words) != 1:
            raise PreconditionFailed("load FILE")
        text = await asyncio.to_thread(Path(words[0]).read_text)
        parse_topology(text, words[0])  # before the current deployment is closed
        await self.close()
        self._deployment = self._make(text)
        self._echo(f"{len(self._deployment.topology.steps)} steps")

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
                raise PreconditionFailed(f"{words[0]!r} is not a number of seconds") from None
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
        if self._deployment is not None:
            try:
                await self._deployment.stop()
            except DeploymentError as error:
                self._echo(f"error: {error}")
            await self._deployment.close()
            self._deployment = None
