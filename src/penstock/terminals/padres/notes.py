"""What a client notes: checked against its permissions, given to the router, answered.

An answer to a publication waits until what must be on disk is. One that is not asked for is given
only if it is a refusal: a client has to know that its publications lead nowhere.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from penstock.broker.destinations import LOGGED, REFUSED
from penstock.core.errors import PenstockError, QueueFull
from penstock.core.logs import get_logger
from penstock.wire.padres.codec import encode
from penstock.wire.padres.envelope import Kind
from penstock.wire.padres.frames import Confirm, Note

if TYPE_CHECKING:
    from penstock.terminals.padres.terminal import PadresTerminal

_log = get_logger("penstock.padres")


class Notes:
    __slots__ = ("_terminal",)

    def __init__(self, terminal: PadresTerminal) -> None:
        self._terminal = terminal

    def take(self, note: Note) -> None:
        terminal = self._terminal
        envelope, receipt = note.envelope, note.receipt
        if envelope.id or envelope.source or envelope.tree or envelope.only or envelope.turns:
            # That is for brokers to say, and to each other.
            envelope = replace(envelope, id="", source="", tree="", only=(), turns=0)
        if envelope.kind is Kind.PUBLISH:
            terminal.published += 1
        try:
            terminal.access.check(envelope)
            answer = terminal.router.receive(terminal.mailbox, envelope)
            if answer.outcome & REFUSED:
                raise QueueFull("a queue has no room for the publication")
        except PenstockError as error:
            _log.debug("refused", connection=terminal.name, reason=str(error))
            terminal.refuse(receipt, error)
            return
        if not receipt:
            return
        if answer.outcome & LOGGED:
            confirmed = partial(self._confirm, receipt, answer.id)
            terminal.host.kernel.committer.after(confirmed, partial(self._failed, receipt))
        else:
            self._confirm(receipt, answer.id)

    def _confirm(self, receipt: int, id_: str) -> None:
        terminal = self._terminal
        if not terminal.closing:
            terminal.host.kernel.metrics.confirmed += 1
            terminal.outflow.send(encode(Confirm(receipt, id_)))

    def _failed(self, receipt: int, error: OSError) -> None:
        if not self._terminal.closing:
            self._terminal.refuse(receipt, error)
