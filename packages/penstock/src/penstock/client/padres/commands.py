"""Text commands of a client: those of the PADRES guide, and those that a program adds.

A handler gets the client and the argument, and returns the text to show. `@Broker2` at the end of
an argument names the broker; the default is the first one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from penstock.client.padres.client import PadresClient
from penstock.core.errors import NotFound, PenstockError, PreconditionFailed
from penstock.wire.padres.envelope import EnvelopeKind

Handler = Callable[[PadresClient, str], Awaitable[str]]

#: How deep batches may run other batches.
MAX_BATCH_DEPTH: Final = 8


class QuitRequested(Exception):
    """Raised by the command `exit`."""


@dataclass(frozen=True, slots=True)
class ClientCommand:
    names: tuple[str, ...]  #: the name and its aliases
    usage: str
    handler: Handler


class ClientCommands:
    def __init__(self, client: PadresClient) -> None:
        self.client = client
        self._commands: dict[str, ClientCommand] = {}
        self._depth = 0
        for names, usage, handler in (
            ("help h ?", "help: list the commands", self._help),
            ("exit quit", "exit: withdraw all registrations and exit", _quit),
            ("setid", "setid ID: set the client id, before connecting", _set_id),
            ("info", "info: the client id and the numbers of registrations", _info),
            ("brokerinfo", "brokerinfo: the connected brokers", _broker_info),
            (
                "connect c",
                "connect URL: a broker, as padres://host:port/BrokerID",
                _connect,
            ),
            ("disconnect dc", "disconnect [@BROKER]: disconnect from a broker", _disconnect),
            ("adv a", "adv [class,eq,NAME],… [@BROKER]: advertise", _advertise),
            ("sub s", "sub [class,eq,NAME],… [@BROKER]: subscribe", _subscribe),
            ("csub cs", "csub {{…}&{…}} [@BROKER]: composite subscription", _subscribe),
            ("pub p", "pub [class,NAME],… [@BROKER]: publish", _publish),
            ("unsub uncsub", "unsub ID[,ID…]: withdraw subscriptions", _withdraw),
            ("unadv", "unadv ID[,ID…]: withdraw advertisements", _withdraw),
            ("printsubs", "printsubs: the client's subscriptions", _subscriptions),
            ("printadvs", "printadvs: the client's advertisements", _advertisements),
            ("batch file", "batch FILE: run the commands in a file, a line each", self._batch),
        ):
            self.add(names, handler, usage)

    def add(self, names: str, handler: Handler, usage: str = "") -> None:
        """Add or replace a command."""
        words = tuple(names.split())
        command = ClientCommand(words, usage or words[0], handler)
        for name in words:
            self._commands[name] = command

    @property
    def names(self) -> list[str]:
        return sorted(self._commands)

    async def run(self, line: str) -> str:
        """Empty lines and those that begin with # do nothing."""
        name, _, argument = line.strip().partition(" ")
        if not name or name.startswith("#"):
            return ""
        command = self._commands.get(name.lower())
        if command is None:
            raise NotFound(f"unknown command {name!r}; `help` lists the commands")
        return await command.handler(self.client, argument.strip())

    async def _help(self, client: PadresClient, argument: str) -> str:
        commands = dict.fromkeys(self._commands.values())
        width = max(len(", ".join(one.names)) for one in commands)
        return "\n".join(f"{', '.join(one.names):<{width}}  {one.usage}" for one in commands)

    async def _batch(self, client: PadresClient, argument: str) -> str:
        if self._depth >= MAX_BATCH_DEPTH:
            raise PreconditionFailed(f"batch files are nested more than {MAX_BATCH_DEPTH} deep")
        try:
            text = await asyncio.to_thread(Path(argument).read_text)
        except (OSError, UnicodeDecodeError) as error:
            raise NotFound(f"batch {argument}: {error}") from error
        self._depth += 1
        try:
            shown = []
            for number, line in enumerate(text.splitlines(), 1):
                try:
                    shown.append(await self.run(line))
                except PenstockError as error:
                    raise PreconditionFailed(f"{argument}, line {number}: {error}") from error
        finally:
            self._depth -= 1
        return "\n".join(filter(None, shown))


def split_broker_address(argument: str) -> tuple[str, str]:
    """The message, and the broker after an @ at its end."""
    message, _, broker = argument.rpartition("@")
    if message and message[-1:] in " ;]}" and broker and " " not in broker and "]" not in broker:
        return message.strip(), broker
    return argument, ""


async def _quit(client: PadresClient, argument: str) -> str:
    raise QuitRequested


async def _set_id(client: PadresClient, argument: str) -> str:
    if client.brokers:
        raise PreconditionFailed("the client is connected: disconnect first")
    client.id = argument
    return f"id {argument}"


async def _info(client: PadresClient, argument: str) -> str:
    counts = dict.fromkeys(EnvelopeKind, 0)
    for _, registration in client.registrations:
        counts[registration.envelope.kind] += 1
    wanted = counts[EnvelopeKind.SUBSCRIBE] + counts[EnvelopeKind.COMPOSITE]
    brokers = ", ".join(client.brokers) or "none"
    announced = counts[EnvelopeKind.ADVERTISE]
    return f"id {client.id}; brokers {brokers}; {announced} advertised; {wanted} subscribed"


async def _broker_info(client: PadresClient, argument: str) -> str:
    return "\n".join(
        f"{name}  {broker.endpoint}  {'connected' if broker.connected else 'reconnecting'}"
        f"  {broker.welcome.software if broker.welcome else ''}"
        for name, broker in client.brokers.items()
    )


async def _connect(client: PadresClient, argument: str) -> str:
    return f"connected to {await client.connect(argument)}"


async def _disconnect(client: PadresClient, argument: str) -> str:
    await client.disconnect(argument.lstrip("@"))
    return ""


async def _advertise(client: PadresClient, argument: str) -> str:
    text, broker = split_broker_address(argument)
    return await client.advertise(text, broker=broker)


async def _subscribe(client: PadresClient, argument: str) -> str:
    text, broker = split_broker_address(argument)
    return await client.subscribe(text, broker=broker)


async def _publish(client: PadresClient, argument: str) -> str:
    text, broker = split_broker_address(argument)
    return await client.publish(text, broker=broker)


async def _withdraw(client: PadresClient, argument: str) -> str:
    ids = argument.replace(",", " ").split()
    if not ids:
        raise PreconditionFailed("an id is needed, such as Broker1-M7; `printsubs` shows them")
    for id_ in ids:
        await client.withdraw(id_)
    return ""


async def _subscriptions(client: PadresClient, argument: str) -> str:
    return _list_registrations(client, EnvelopeKind.SUBSCRIBE, EnvelopeKind.COMPOSITE)


async def _advertisements(client: PadresClient, argument: str) -> str:
    return _list_registrations(client, EnvelopeKind.ADVERTISE)


def _list_registrations(client: PadresClient, *kinds: EnvelopeKind) -> str:
    return "\n".join(
        f"{registration.id}  {broker}  {registration.envelope.text}"
        for broker, registration in client.registrations
        if registration.envelope.kind in kinds
    )
