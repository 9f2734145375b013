"""The links of a broker, outgoing and incoming.

A broker connects only to addresses of its settings or its operator, and accepts links of configured
ids. Brokers may start in any order: connections are retried after a pause, up to a limit. Of two
links to entry neighbour, the entry made by the broker with the smaller id stays.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Final

from penstock.broker.contract import ACCEPTED
from penstock.broker.kernel import Kernel
from penstock.broker.vhost import VirtualHost
from penstock.content.errors import LanguageError
from penstock.content.messages import Publication
from penstock.core.config import OverlaySettings
from penstock.core.errors import (
    AccessRefused,
    FrameError,
    LinkRefused,
    NotAllowed,
    NotFound,
    PenstockError,
    ResourceLocked,
    WireSyntaxError,
)
from penstock.core.logs import get_logger
from penstock.overlay.broker_uri import BrokerUri, parse_uri, without_user
from penstock.overlay.link import OverlayLink, QueuedNeighbourChannel
from penstock.overlay.neighbours import Neighbour
from penstock.overlay.persistence import RouterJournal, Watermarks
from penstock.overlay.router import OverlayRouter
from penstock.overlay.rules import CycleMode
from penstock.wire.padres.envelope import EnvelopeKind, PadresEnvelope
from penstock.wire.padres.errors import error_from_code
from penstock.wire.padres.frames import MAX_FRAME_BYTES, CloseFrame, OpenFrame, PeerRole

CONNECT_SECONDS: Final = 10.0

_log = get_logger("penstock.overlay")


class LinkRegistry:
    def __init__(
        self,
        kernel: Kernel,
        vhost: VirtualHost,
        router: OverlayRouter,
        journal: RouterJournal,
        store: str,
        directory: Path,
    ) -> None:
        self.kernel = kernel
        self.loop = kernel.loop
        self.router = router
        self.uri = ""  #: our own address, once known
        self.largest = MAX_FRAME_BYTES
        self.marks = Watermarks(directory, kernel.committer)
        self._vhost = vhost
        self._journal = journal
        self._store = store
        self._settings = kernel.settings.overlay
        self._policy = PeerPolicy(self._settings)
        self._lines: dict[str, QueuedNeighbourChannel] = {}
        self._links: dict[str, OverlayLink] = {}  #: by the neighbour's id
        self._all: set[OverlayLink] = set()
        self._dialling: dict[str, asyncio.Task[None]] = {}
        self._lost: dict[str, asyncio.Event] = {}
        self.refused: dict[str, str] = {}  #: errors by address
        self._addresses: dict[str, str] = {}  #: outgoing, as configured, by id
        self._given: dict[str, str] = {}  #: given by an operator, to be stored
        self._users: dict[str, tuple[str, str]] = {}  #: user and password of an address
        router.next_hops.watchers.append(self._stopped_or_resumed)

    def restore_neighbours(self) -> None:
        """Restore stored neighbours; their links are down."""
        for name in self._journal.neighbours():
            self.router.join(name, self._line(name))

    def start(self, uri: str) -> None:
        self.uri = uri
        for named in self._settings.neighbours:
            self._connect(named)
        for name, address in self._journal.neighbours().items():
            if name in self._addresses:
                continue
            if address:
                self.connect(address)
            elif name not in self._settings.accept_links_from:
                _log.warning(
                    "neighbour not configured",
                    neighbour=name,
                    next="name it in broker.overlay.accept_links_from, or OVERLAY-DISCONNECT it",
                )

    async def close(self) -> None:
        dialling = list(self._dialling.values())
        self._dialling.clear()
        for task in dialling:
            task.cancel()
        await asyncio.gather(*dialling, return_exceptions=True)
        for link in list(self._all):
            link.end(None)
        if self._all:
            await asyncio.wait([link.ended for link in self._all], timeout=1.0)
        for link in list(self._all):
            link.abort()

    def close_files(self) -> None:
        """Called after the last write."""
        self.marks.close()

    def connect(self, address: str) -> None:
        """Connect on an operator's command; stored for later starts."""
        uri = self._connect(address)
        if uri is not None:
            self._given[uri.id] = str(uri)

    def _connect(self, address: str) -> BrokerUri | None:
        """Start connecting to a broker; logs why if that is not possible."""
        try:
            uri = parse_uri(address)
            if uri.id == self.router.broker_id:
                raise LinkRefused(f"{uri} is this broker")
            if not (uri.user or self._settings.user):
                raise LinkRefused(
                    f"no user for {uri}: set broker.overlay.user and "
                    "broker.overlay.password to those of a user with the tag overlay at that broker"
                )
        except LinkRefused as error:
            self._refuse(address, str(error))
            return None
        self.refused.pop(address, None)
        self._addresses[uri.id] = address
        if uri.user:
            self._users[uri.id] = (uri.user, uri.password)
        running = self._dialling.get(uri.id)
        if running is None or running.done():
            self._dialling[uri.id] = self.loop.create_task(self._dial(uri, address))
        return uri

    def _refuse(self, address: str, why: str) -> None:
        self.refused[address] = why
        _log.error("link refused", broker=without_user(address), reason=why)

    async def _dial(self, uri: BrokerUri, address: str) -> None:
        settings = self._settings
        failures = 0
        while not settings.retry_limit or failures < settings.retry_limit:
            while uri.id in self._links:
                await self._lost[uri.id].wait()
                failures = 0
            try:
                reason = await self._run_link(uri)
            except (OSError, TimeoutError, PenstockError) as error:
                reason = error
            if isinstance(reason, (NotAllowed, NotFound, FrameError)):
                self._refuse(address, str(reason))
                return
            failures += 1
            if uri.id not in self._links:
                _log.info(
                    "neighbour unreachable", broker=str(uri), attempts=failures, reason=str(reason)
                )
                await asyncio.sleep(settings.retry_pause)
        self._refuse(address, f"gave up after {failures} attempts")

    async def _run_link(self, uri: BrokerUri) -> Exception | None:
        """Connect, and wait until the link ends."""
        async with asyncio.timeout(CONNECT_SECONDS):
            _, link = await self.loop.create_connection(
                lambda: OverlayLink(self, uri.id), uri.host, uri.port, ssl=self._tls(uri)
            )
        self._all.add(link)
        try:
            return await asyncio.shield(link.ended)
        except asyncio.CancelledError:
            link.end(None)
            raise

    def _tls(self, uri: BrokerUri) -> ssl.SSLContext | None:
        if not uri.tls:
            return None
        tls = self.kernel.settings.tls
        context = ssl.create_default_context(cafile=tls.authority)
        if tls.certificate is not None:
            context.load_cert_chain(tls.certificate, tls.key)
        return context

    def accept_link(
        self, opened: OpenFrame, vhost: str, check_user: Callable[[], None]
    ) -> asyncio.Protocol:
        """Accept a broker that connected to us."""
        if vhost != self._vhost.name:
            raise NotAllowed(f"brokers are linked in vhost '{self._vhost.name}' only")
        if opened.wanted and opened.wanted != self.router.broker_id:
            raise NotFound(f"this is broker {self.router.broker_id}, not {opened.wanted}")
        self._policy.check_link(opened.id, dialled=opened.id in self._addresses)
        link = OverlayLink(self, opened.id, opened, check_user)
        self.check(link, opened)
        self._all.add(link)
        return link

    def check_users(self) -> None:
        """Users changed: close links whose user lost the permission."""
        for link in list(self._all):
            link.check_user()

    # For links.

    def introduction(self, wanted: str, dialled: bool) -> OpenFrame:
        """Our open frame; credentials are sent on outgoing links only."""
        user = password = ""
        if dialled:
            ours = (self._settings.user, self._settings.password)
            user, password = self._users.get(wanted, ours)
        return OpenFrame(
            PeerRole.BROKER,
            self.router.broker_id,
            uri=self.uri,
            store=self._store,
            user=user,
            password=password,
            wanted=wanted,
            largest=self.largest,
        )

    def check(self, link: OverlayLink, opened: OpenFrame) -> None:
        """Check the identity of the neighbour of a link."""
        name = opened.id
        if opened.role is not PeerRole.BROKER:
            raise LinkRefused(f"{name} is not a broker")
        if name == self.router.broker_id:
            raise LinkRefused(f"duplicate broker id {name}: ids must be unique")
        if link.wanted != name:
            raise LinkRefused(f"expected broker {link.wanted}, got {name}")
        self._one_link(link, name)

    def _one_link(self, link: OverlayLink, name: str) -> None:
        """Of two links the one made by the broker with the smaller id stays, at both ends; of two
        made by the same broker, the later."""
        other = self._links.get(name)
        if other is None or other is link or other.dialled == link.dialled:
            return
        ours_stays = self.router.broker_id < name
        if other.dialled == ours_stays and self.router.neighbours[name].usable:
            raise ResourceLocked(f"{name} and {self.router.broker_id} are already linked")

    def joined(self, link: OverlayLink, name: str) -> tuple[Neighbour, QueuedNeighbourChannel]:
        self._one_link(link, name)
        before = self._links.get(name)
        if before is not None and before is not link:
            before.end(ResourceLocked(f"{name} has another link"))
        line = self._line(name)
        neighbour = self.router.join(name, line)
        line.link = link
        self._links[name] = link
        self._lost.setdefault(name, asyncio.Event()).clear()
        self._journal.store_neighbour(name, self._given.get(name, ""))
        return neighbour, line

    def receive(self, neighbour: Neighbour, envelope: PadresEnvelope) -> int:
        try:
            if envelope.kind is EnvelopeKind.PUBLISH:
                self._policy.check_publication(neighbour.name, self.router.read(envelope.text))
            return self.router.receive(neighbour, envelope).outcome
        except AccessRefused as error:
            _log.warning(
                "publication refused", neighbour=neighbour.name, id=envelope.id, reason=str(error)
            )
            return ACCEPTED
        except (LanguageError, WireSyntaxError) as error:  # permanent: not to be sent again
            _log.error(
                "message invalid", neighbour=neighbour.name, id=envelope.id, reason=str(error)
            )
            return ACCEPTED

    def _stopped_or_resumed(self) -> None:
        for link in self._links.values():
            link.stopped_or_resumed()

    def closed_by(self, frame: CloseFrame) -> PenstockError | None:
        return error_from_code(frame.code, frame.reason) if frame.code else None

    def left(self, link: OverlayLink) -> None:
        self._all.discard(link)
        name = link.wanted
        if self._links.get(name) is not link:
            return
        del self._links[name]
        line = self._lines[name]
        line.link = None
        neighbour = self.router.neighbours.get(name)
        if neighbour is not None:
            neighbour.up = False
        self._lost[name].set()
        if isinstance(link.reason, NotAllowed):
            self._refuse(self._addresses.get(name, name), str(link.reason))
            self._remove_neighbour(name)
        else:
            _log.warning("link lost", neighbour=name)

    def _line(self, name: str) -> QueuedNeighbourChannel:
        line = self._lines.get(name)
        if line is None:
            line = self._lines[name] = QueuedNeighbourChannel(self._vhost, name)
        return line

    def disconnect(self, name: str) -> None:
        if name not in self.router.neighbours:
            raise NotFound(f"{name} is not a neighbour")
        if self.router.rules.cycles is not CycleMode.OFF:
            raise NotAllowed("a link cannot be removed with overlay.cycles: trees use every link")
        link = self._links.get(name)
        if link is not None:
            link.end(NotAllowed(f"{self.router.broker_id} is no longer a neighbour"))
        else:
            self._remove_neighbour(name)

    def _remove_neighbour(self, name: str) -> None:
        dialling = self._dialling.pop(name, None)
        if dialling is not None:
            dialling.cancel()
        self._addresses.pop(name, None)
        self._given.pop(name, None)
        self._journal.remove_neighbour(name)
        self.router.detach(name)
        self._lines.pop(name).delete_queue()

    def describe(self) -> list[dict[str, object]]:
        return [
            {
                "id": entry.name,
                "up": entry.up,
                "failed": entry.failed,
                "messages": entry.traffic.total,
            }
            for entry in self.router.neighbours.values()
        ]


#: Classes of commands to brokers.
COMMAND_CLASSES: Final = frozenset({"BROKER_CONTROL", "BROKER_MONITOR", "GLOBAL_FD"})
_HEARTBEAT: Final = "HEARTBEAT_MANAGER"


class PeerPolicy:
    """What other brokers may do.

    A neighbour advertises, subscribes and publishes for its clients. Commands are accepted from
    `accept_commands_from` only, and not relayed for others. No command of a neighbour makes this
    broker connect to an address that is not in its settings.
    """

    def __init__(self, settings: OverlaySettings) -> None:
        self._me = settings.id
        self._links = frozenset(settings.accept_links_from)
        self._commands = frozenset(settings.accept_commands_from)
        self._addresses = {_canonical(entry) for entry in settings.neighbours}

    def check_link(self, peer: str, dialled: bool) -> None:
        """Outgoing links are always allowed."""
        if not dialled and peer not in self._links:
            raise AccessRefused(
                f"broker {peer} is not configured at {self._me}: add it to "
                "broker.overlay.accept_links_from there"
            )

    def check_publication(self, peer: str, publication: Publication) -> None:
        name, attributes = publication.class_name, publication.attributes
        if name in COMMAND_CLASSES and peer not in self._commands:
            raise AccessRefused(
                f"broker {self._me} does not accept {name} from {peer}: add it to "
                "broker.overlay.accept_commands_from"
            )
        if name == _HEARTBEAT and attributes.get("fromID", peer) != peer:
            raise AccessRefused(f"{peer} sent a heartbeat of {attributes['fromID']}")
        if (
            name == "BROKER_CONTROL"
            and attributes.get("command") == "OVERLAY-CONNECT"
            and attributes.get("brokerID") == self._me
            and _canonical(str(attributes.get("broker", ""))) not in self._addresses
        ):
            raise AccessRefused(
                f"{peer} sent an address that is not in broker.overlay.neighbours: send the "
                f"command to {self._me} itself"
            )


def _canonical(address: str) -> str:
    try:
        return str(parse_uri(address))
    except LinkRefused:
        return address
