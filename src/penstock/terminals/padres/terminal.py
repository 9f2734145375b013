"""The PADRES terminal: one socket, one client.

Bytes come in by `data_received` and are taken apart by `wire/padres`. What a client says goes to
the router of its virtual host (`notes.py`), what the router has for it comes out of its mailbox
(`mailbox.py`, `outflow.py`). `joining.py` lets it in, `lifesigns.py` knows whether it still lives,
`broker/intake.py` when reading stops. A broker that connects is handed on as a link.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from penstock.broker.intake import READ_BYTES, Intake
from penstock.broker.presence import arrive, depart, hang_up
from penstock.core.errors import ConnectionForced, FrameError, PenstockError
from penstock.core.logs import get_logger
from penstock.terminals.padres.access import LinkAccess
from penstock.terminals.padres.description import describe_connection, describe_consumers
from penstock.terminals.padres.joining import Joining
from penstock.terminals.padres.lifesigns import Lifesigns
from penstock.terminals.padres.notes import Notes
from penstock.terminals.padres.outflow import CHOKE_BYTES, Outflow
from penstock.wire.padres.codec import encode
from penstock.wire.padres.conditions import INTERNAL, code_of
from penstock.wire.padres.frames import (
    PREFACE,
    Beat,
    Close,
    Confirm,
    Failed,
    Frame,
    Note,
    Open,
    Role,
)
from penstock.wire.padres.reader import Reader

if TYPE_CHECKING:
    from penstock.broker.routing import Router
    from penstock.broker.user import User
    from penstock.broker.vhost import VirtualHost
    from penstock.terminals.padres.access import Access
    from penstock.terminals.padres.mailbox import Mailbox
    from penstock.terminals.padres.service import Padres
    from penstock.wire.padres.envelope import Envelope

#: How long a client that is sent away may take to read what it is told.
CLOSE_SECONDS: Final = 5.0

_log = get_logger("penstock.padres")


class PadresTerminal(asyncio.Protocol):
    __slots__ = (
        "_joining",
        "_notes",
        "_turn",
        "access",
        "client_id",
        "closing",
        "host",
        "intake",
        "lifesigns",
        "mailbox",
        "name",
        "opened",
        "outflow",
        "peer",
        "published",
        "reader",
        "router",
        "run",
        "service",
        "software",
        "tls",
        "transport",
        "vhost",
    )

    def __init__(self, service: Padres) -> None:
        self.service = service
        self.host = service.host
        self._turn = self.host.kernel.turn
        self.transport: asyncio.Transport
        self.peer: tuple[Any, ...]  # address and port
        self.tls: bool
        self.vhost: VirtualHost
        self.access: Access
        self.mailbox: Mailbox
        self.router: Router[Envelope]
        self.reader = Reader()
        self.intake = Intake(self)
        self.outflow = Outflow(self)
        self.lifesigns = Lifesigns(self)
        self.client_id = ""
        self.software = ""
        self.run = ""  #: of the program that the client is
        self.name = ""
        self.published = 0
        self.opened = False
        self.closing = False
        self._joining: Joining | None = Joining(self)
        self._notes = Notes(self)

    # The socket.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        arrive(self, transport, CHOKE_BYTES)
        self.lifesigns.expect(self.host.kernel.settings.handshake_timeout, self._too_late)

    def data_received(self, data: bytes) -> None:
        if not self.closing:
            self._take_in(data)

    def _take_in(self, data: bytes) -> None:
        self.lifesigns.heard = True
        turn = self._turn
        turn.reader = self.intake
        published = self.published
        try:
            for frame in self.reader.frames(data):
                self._take(frame)
                turn.spend()
                if self.closing:
                    break
        except Exception as error:
            self.fail(error)
        metrics = self.host.kernel.metrics
        size = len(data)
        metrics.bytes_in += size
        if size >= READ_BYTES or self.intake.wide:
            self.intake.adapt(size)
        if self.published != published:
            metrics.published += self.published - published
            self.intake.look()
        if self.outflow.paused and self.intake.unread:
            self.intake.pause()
        self._turn.rest()

    def _take(self, frame: Frame) -> None:
        if isinstance(frame, Open):
            assert self._joining is not None, "the reader lets one pass"
            self._joining.begin(frame)
        elif isinstance(frame, Note):
            self._notes.take(frame)
        elif isinstance(frame, Confirm):
            self.outflow.answered(frame.receipt)
        elif isinstance(frame, Close):
            self._leave()
            self.transport.close()
        elif not isinstance(frame, Beat):
            raise FrameError(f"{type(frame).__name__} is not for a client to say")

    def pause_writing(self) -> None:
        self.outflow.pause()

    def resume_writing(self) -> None:
        self.outflow.resume()
        self.intake.resume()
        self._turn.end()

    def connection_lost(self, exc: Exception | None) -> None:
        self._leave()
        self.lifesigns.stop()
        self.intake.end()
        depart(self)
        # What refers back to us would keep us, and all that was read, until cycles are looked for.
        del self.intake, self.outflow, self.lifesigns, self._notes
        with suppress(AttributeError):  # who was not let in may have none
            del self.mailbox

    # Whether it is read from.

    @property
    def held(self) -> bool:
        return self.reader.stopped

    @held.setter
    def held(self, held: bool) -> None:
        self.reader.stopped = held

    @property
    def unread_bytes(self) -> int:
        return self.transport.get_write_buffer_size() if self.outflow.paused else 0

    def blocking(self, reason: str) -> None:
        """Publishers notice that they are not read from."""

    def unblocking(self) -> None:
        """And that they are again."""

    def alarms_changed(self) -> None:
        if self.opened and not self.closing:
            self.intake.alarms_changed()

    # Life.

    def open(self, opened: Open, client_id: str, router: Router[Envelope], *, known: bool) -> None:
        """The client is let in; it was here before, if it is known."""
        settings = self.host.kernel.settings
        self.opened = True
        self._joining = None
        self.client_id = client_id
        self.software = opened.software
        self.run = opened.store
        self.router = router
        self.reader.largest = settings.padres.max_frame_bytes
        self.outflow.largest = opened.largest
        self.service.present[self.vhost.name, self.mailbox.name] = self
        product = self.host.product
        answer = Open(
            Role.BROKER,
            router.broker_id,
            wanted=client_id,
            vhost=self.vhost.name,
            heartbeat=opened.heartbeat,
            largest=self.reader.largest,
            lasting=opened.lasting and known,
            software=f"{product['product']} {product['version']}",
        )
        self.outflow.send(PREFACE + encode(answer))
        router.attach(self.mailbox, attentive=opened.attentive)
        self.outflow.open(self.mailbox)
        self.lifesigns.begin(opened.heartbeat)

    def become_link(self, opened: Open, vhost: VirtualHost, user: User) -> None:
        """It is a broker: from now on the connection is the overlay's."""
        access = LinkAccess(self.host.users, user, opened.id)
        access.check()
        protocol = self.host.links.welcome(opened, vhost.name, access.check)
        self._joining = None
        self._leave()
        self.lifesigns.stop()
        self.intake.end()
        self.host.client_left(self)
        self.transport.set_protocol(protocol)
        protocol.connection_made(self.transport)
        self.transport.resume_reading()
        if rest := self.reader.rest:
            protocol.data_received(rest)

    def _too_late(self) -> None:
        _log.info("client took too long to introduce itself", connection=self.name)
        self.transport.abort()

    def fail(self, error: Exception) -> None:
        """Close the connection and say why."""
        if self.closing:
            return
        code, text = code_of(error), str(error) or type(error).__name__
        if isinstance(error, PenstockError):
            _log.info("connection closed", connection=self.name, reason=text)
        else:
            code, text = INTERNAL, "internal error"
            _log.error("connection failed", connection=self.name, exc_info=error)
        self.outflow.send((b"" if self.opened else PREFACE) + encode(Close(code, text)))
        self._leave()
        self.outflow.flush()
        hang_up(self, told=True)
        self.lifesigns.expect(CLOSE_SECONDS, self.transport.abort)

    def refuse(self, receipt: int, error: Exception) -> None:
        """What the client noted is not accepted; it may go on."""
        position = getattr(error, "position", -1)
        self.outflow.send(encode(Failed(receipt, code_of(error), str(error), position)))

    def _leave(self) -> None:
        """Once: let go of everything but the socket; what was read behind is not looked at."""
        self.closing = True
        self.reader.stopped = True
        if self._joining is not None:
            self._joining.cancel()
            self._joining = None
        if not self.opened:
            return
        self.opened = False
        place = (self.vhost.name, self.mailbox.name)
        if self.service.present.get(place) is self:
            del self.service.present[place]
        self.outflow.close()
        if not self.mailbox.lasting:
            self.router.detach(self.mailbox.name)
            self.mailbox.forget()
        self.vhost.release(self)

    def end(self, reason: str) -> None:
        self.fail(ConnectionForced(reason))
        self._turn.end()

    def abort(self) -> None:
        self.transport.abort()

    # Management.

    def describe(self) -> dict[str, Any]:
        return describe_connection(self)

    def describe_channels(self) -> list[dict[str, Any]]:
        return []

    def describe_consumers(self) -> list[dict[str, Any]]:
        return describe_consumers(self)
