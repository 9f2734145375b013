"""The links of a broker: those it makes, those others make to it, and those that broke.

A broker dials the addresses that its settings or its operator named, and no other; it accepts links
of the ids that its settings name (`link_registry.py`). The brokers may start in any order. Who is
not there is tried again after a pause, and given up after so many tries in vain. Of two links to
the same neighbour, the one that the broker with the smaller id made stays.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from penstock.broker.contract import ACCEPTED
from penstock.broker.kernel import Kernel
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
from penstock.overlay.persistence import Watermarks
from penstock.overlay.rules import CycleMode
from penstock.wire.padres.envelope import EnvelopeKind, PadresEnvelope
from penstock.wire.padres.errors import error_from_code
from penstock.wire.padres.frames import MAX_FRAME_BYTES, CloseFrame, OpenFrame, PeerRole

if TYPE_CHECKING:
    from penstock.broker.vhost import VirtualHost
    from penstock.overlay.neighbours import Neighbour
    from penstock.overlay.persistence import RouterJournal
    from penstock.overlay.router import OverlayRouter


#: How long a neighbour may take to let us in.
CONNECT_SECONDS: Final = 10.0

_log = get_logger("penstock.overlay")


class LinkRegistry:
    def __init__(
        self,
        kernel: Kernel,
        vhost: VirtualHost,
        router: OverlayRouter,
        memory: RouterJournal,
        store: str,
        directory: Path,
    ) -> None:
        self.kernel = kernel
        self.loop = kernel.loop
        self.router = router
        self.uri = ""  #: where we are reached, once that is known
        self.largest = MAX_FRAME_BYTES
        self.marks = Watermarks(directory, kernel.committer)
        self._vhost = vhost
        self._memory = memory
        self._store = store
        self._settings = kernel.settings.overlay
        self._policy = PeerPolicy(self._settings)
        self._lines: dict[str, QueuedNeighbourChannel] = {}
        self._links: dict[str, OverlayLink] = {}  #: by the neighbour's id
        self._all: set[OverlayLink] = set()
        self._dialling: dict[str, asyncio.Task[None]] = {}
        self._lost: dict[str, asyncio.Event] = {}
        self.refused: dict[str, str] = {}  #: addresses there is no link to, and why
        self._addresses: dict[str, str] = {}  #: that are dialled, as they were named, by id
        self._given: dict[str, str] = {}  #: those of them that an operator gave, to be remembered
        self._users: dict[str, tuple[str, str]] = {}  #: as whom, where an address says so
        router.next_hops.watchers.append(self._stopped_or_resumed)

    # Life.

    def recall(self) -> None:
        """The neighbours there were; their links are down."""
        for name in self._memory.neighbours():
            self.router.join(name, self._line(name))

    def start(self, uri: str) -> None:
        self.uri = uri
        for named in self._settings.neighbours:
            self._connect(named)
        for name, address in self._memory.neighbours().items():
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
        """After everything was written."""
        self.marks.close()

    # Making links.

    def connect(self, address: str) -> None:
        """What an operator wants; it holds for later starts, too."""
        uri = self._connect(address)
        if uri is not None:
            self._given[uri.id] = str(uri)

    def _connect(self, address: str) -> BrokerUri | None:
        """Begin to be linked with a broker; says in the log when that cannot be."""
        try:
            uri = parse_uri(address)
            if uri.id == self.router.broker_id:
                raise LinkRefused(f"{uri} is this broker itself")
            if not (uri.user or self._settings.user):
                raise LinkRefused(
                    f"there is no user to connect to {uri} as: set broker.overlay.user and "
                    "broker.overlay.password to those of a user with the tag overlay there"
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
        _log.error("no link", broker=without_user(address), reason=why)

    async def _dial(self, uri: BrokerUri, address: str) -> None:
        settings = self._settings
        failures = 0
        while not settings.retry_limit or failures < settings.retry_limit:
            while uri.id in self._links:
                await self._lost[uri.id].wait()
                failures = 0
            try:
                reason = await self._talk(uri)
            except (OSError, TimeoutError, PenstockError) as error:
                reason = error
            if isinstance(reason, (NotAllowed, NotFound, FrameError)):
                self._refuse(address, str(reason))
                return
            failures += 1
            if uri.id not in self._links:
                _log.info("neighbour not there", broker=str(uri), tries=failures, why=str(reason))
                await asyncio.sleep(settings.retry_pause)
        self._refuse(address, f"given up after {failures} tries")

    async def _talk(self, uri: BrokerUri) -> Exception | None:
        """Be linked; ends with the link."""
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

    def welcome(
        self, opened: OpenFrame, vhost: str, check_user: Callable[[], None]
    ) -> asyncio.Protocol:
        """For a broker that connected to us, for as long as its user may link brokers."""
        if vhost != self._vhost.name:
            raise NotAllowed(f"brokers are linked in vhost '{self._vhost.name}' alone")
        if opened.wanted and opened.wanted != self.router.broker_id:
            raise NotFound(f"this is broker {self.router.broker_id}, and not {opened.wanted}")
        self._policy.check_link(opened.id, dialled=opened.id in self._addresses)
        link = OverlayLink(self, opened.id, opened, check_user)
        self.check(link, opened)
        self._all.add(link)
        return link

    def check_users(self) -> None:
        """Users have changed: links whose user may no longer have them end."""
        for link in list(self._all):
            link.check_user()

    # What a link asks.

    def introduction(self, wanted: str, dialled: bool) -> OpenFrame:
        """Who we are. Who connected to us has shown its password, and does not get ours."""
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
        """Whether a broker that says who it is can be the neighbour of this link."""
        name = opened.id
        if opened.role is not PeerRole.BROKER:
            raise LinkRefused(f"{name} is no broker")
        if name == self.router.broker_id:
            raise LinkRefused(f"{name} would be linked to itself: ids of brokers differ")
        if link.wanted != name:
            raise LinkRefused(f"{link.wanted} was meant, and {name} answered")
        self._one_link(link, name)

    def _one_link(self, link: OverlayLink, name: str) -> None:
        """Of two links the one that the broker with the smaller id made stays, at both ends.

        Of two that the same one made it is the later: that broker knows that the other is gone.
        """
        other = self._links.get(name)
        if other is None or other is link or other.dialled == link.dialled:
            return
        ours_stays = self.router.broker_id < name
        if other.dialled == ours_stays and self.router.neighbours[name].usable:
            raise ResourceLocked(f"{name} and {self.router.broker_id} are linked already")

    def joined(self, link: OverlayLink, name: str) -> tuple[Neighbour, QueuedNeighbourChannel]:
        """A broker asks to be a neighbour."""
        self._one_link(link, name)
        before = self._links.get(name)
        if before is not None and before is not link:
            before.end(ResourceLocked(f"{name} has another link"))
        line = self._line(name)
        neighbour = self.router.join(name, line)
        line.link = link
        self._links[name] = link
        self._lost.setdefault(name, asyncio.Event()).clear()
        self._memory.keep_neighbour(name, self._given.get(name, ""))
        return neighbour, line

    def receive(self, neighbour: Neighbour, envelope: PadresEnvelope) -> int:
        try:
            if envelope.kind is EnvelopeKind.PUBLISH:
                self._policy.check_publication(neighbour.name, self.router.read(envelope.text))
            return self.router.receive(neighbour, envelope).outcome
        except AccessRefused as error:
            _log.warning("publication of a neighbour refused", id=envelope.id, reason=str(error))
            return ACCEPTED
        except (LanguageError, WireSyntaxError) as error:  # another time it would be no better
            _log.error(
                "cannot be passed on", neighbour=neighbour.name, id=envelope.id, why=str(error)
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
            self._part(name)
        else:
            _log.warning("link lost", neighbour=name)

    def _line(self, name: str) -> QueuedNeighbourChannel:
        line = self._lines.get(name)
        if line is None:
            line = self._lines[name] = QueuedNeighbourChannel(self._vhost, name)
        return line

    # No longer neighbours.

    def disconnect(self, name: str) -> None:
        if name not in self.router.neighbours:
            raise NotFound(f"{name} is no neighbour")
        if self.router.rules.cycles is not CycleMode.OFF:
            raise NotAllowed("where brokers form cycles, trees run through every link: it stays")
        link = self._links.get(name)
        if link is not None:
            link.end(NotAllowed(f"{self.router.broker_id} is no neighbour any more"))
        else:
            self._part(name)

    def _part(self, name: str) -> None:
        dialling = self._dialling.pop(name, None)
        if dialling is not None:
            dialling.cancel()
        self._addresses.pop(name, None)
        self._given.pop(name, None)
        self._memory.forget_neighbour(name)
        self.router.detach(name)
        self._lines.pop(name).forget()

    def describe(self) -> list[dict[str, object]]:
        return [
            {"id": one.name, "up": one.up, "failed": one.failed, "messages": one.traffic.total}
            for one in self.router.neighbours.values()
        ]


# What other brokers may do here: which may link, and what a neighbour may publish.
#
# A neighbour routes: it advertises, subscribes and publishes for its clients, and it sees what it
# subscribes to. It does not control this broker. Commands pass from the neighbours that
# `accept_commands_from` names, and end here from all others: a broker further on trusts this one to
# have checked. No command from a neighbour makes this broker dial an address that its own settings
# do not have.

#: Publications of these classes are commands to brokers.
COMMAND_CLASSES: Final = frozenset({"BROKER_CONTROL", "BROKER_MONITOR", "GLOBAL_FD"})
_HEARTBEAT: Final = "HEARTBEAT_MANAGER"


class PeerPolicy:
    def __init__(self, settings: OverlaySettings) -> None:
        self._me = settings.id
        self._links = frozenset(settings.accept_links_from)
        self._commands = frozenset(settings.accept_commands_from)
        self._addresses = {_canonical(one) for one in settings.neighbours}

    def check_link(self, peer: str, dialled: bool) -> None:
        """Whether a broker may connect; one that we dial ourselves may."""
        if not dialled and peer not in self._links:
            raise AccessRefused(
                f"broker {peer} is not configured at {self._me}: add it to "
                "broker.overlay.accept_links_from there"
            )

    def check_publication(self, peer: str, publication: Publication) -> None:
        name, attributes = publication.class_name, publication.attributes
        if name in COMMAND_CLASSES and peer not in self._commands:
            raise AccessRefused(
                f"broker {self._me} takes no {name} from {peer}: add it to "
                "broker.overlay.accept_commands_from"
            )
        if name == _HEARTBEAT and attributes.get("fromID", peer) != peer:
            raise AccessRefused(f"{peer} sends heartbeats of {attributes['fromID']}")
        if (
            name == "BROKER_CONTROL"
            and attributes.get("command") == "OVERLAY-CONNECT"
            and attributes.get("brokerID") == self._me
            and _canonical(str(attributes.get("broker", ""))) not in self._addresses
        ):
            raise AccessRefused(
                f"{peer} names an address that is not in broker.overlay.neighbours: give the "
                f"command to {self._me} itself"
            )


def _canonical(address: str) -> str:
    try:
        return str(parse_uri(address))
    except LinkRefused:
        return address
