"""`connection.*` once it is open."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.terminals.amqp091 import methods
from penstock.terminals.amqp091.methods import Arguments, method_frame

if TYPE_CHECKING:
    from penstock.terminals.amqp091.terminal import Amqp091Terminal


def connection_close(terminal: Amqp091Terminal, number: int, args: Arguments) -> None:
    terminal.close_ok()


def connection_update_secret(terminal: Amqp091Terminal, number: int, args: Arguments) -> None:
    """Passwords are checked at the start and do not run out: the new one is for the next time."""
    terminal.send(method_frame(0, methods.CONNECTION_UPDATE_SECRET_OK))
