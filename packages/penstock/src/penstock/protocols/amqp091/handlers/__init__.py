"""Handlers of the methods of an open connection: a module per AMQP class, a function per method,
found by its protocol name (`queue.declare` is `queue.queue_declare`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from penstock.core.errors import CommandInvalid
from penstock.protocols.amqp091.handlers import basic, channel, connection, exchange, queue, tx
from penstock.wire.amqp091.methods import METHODS, MethodArguments

if TYPE_CHECKING:
    from penstock.protocols.amqp091.terminal import Amqp091Terminal

MethodHandler = Callable[["Amqp091Terminal", int, MethodArguments], None]


def _unimplemented(name: str) -> MethodHandler:
    def refuse(terminal: Amqp091Terminal, number: int, args: MethodArguments) -> None:
        raise CommandInvalid(f"unimplemented method '{name}'")

    return refuse


def _on_channel(function: Callable[[Any, MethodArguments], None]) -> MethodHandler:
    def handle(terminal: Amqp091Terminal, channel: int, args: MethodArguments) -> None:
        function(terminal.channels[channel], args)

    return handle


def _table() -> dict[int, MethodHandler]:
    table: dict[int, MethodHandler] = {}
    for number, method in METHODS.items():
        group, _, name = method.name.replace("-", "_").partition(".")
        function: Any = None
        for module in (basic, channel, connection, exchange, queue, tx):
            function = function or getattr(module, f"{group}_{name}", None)
        if function is None:
            table[number] = _unimplemented(method.name)
        elif group == "connection" or (group, name) == ("channel", "open"):
            table[number] = function
        else:
            table[number] = _on_channel(function)
    return table


HANDLERS: Final = _table()
