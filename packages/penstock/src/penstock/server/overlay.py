"""Content routing in a broker: a router per virtual host, and links for the default virtual host.

The modules are loaded when they are first needed: for a PADRES client, a neighbour, or routing
tables from an earlier run.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING

from penstock.core.config import OverlaySettings
from penstock.core.errors import PreconditionFailed
from penstock.wire.padres.frames import OpenFrame

if TYPE_CHECKING:
    from penstock.broker.write_batch import WriteBatch
    from penstock.overlay.controller import OverlayController
    from penstock.overlay.link_registry import LinkRegistry
    from penstock.overlay.router import OverlayRouter
    from penstock.server.broker import Broker
    from penstock.server.console import ContentConsole
    from penstock.server.content_space import ContentSpace
    from penstock.server.overlay_status import OverlayStatus


class Overlay:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._routers: dict[str, OverlayRouter] = {}
        self._spaces: dict[str, ContentSpace] = {}
        self._consoles: dict[str, ContentConsole] = {}
        self._links: LinkRegistry | None = None
        self._federation: OverlayStatus | None = None
        self.controller: OverlayController | None = None
        self._started = False

    def router(self, vhost: str) -> ContentSpace:
        space = self._spaces.get(vhost)
        if space is None:
            try:  # loads NumPy
                from penstock.server.content_space import ContentSpace

                router = self._make(vhost)
            except ModuleNotFoundError as missing:
                raise PreconditionFailed(
                    f"content routing needs {missing.name}: pip install {missing.name}"
                ) from None
            space = ContentSpace(self._broker.vhosts[vhost], router, router.read)
            self._spaces[vhost] = space
        return space

    def accept_link(
        self, opened: OpenFrame, vhost: str, check_user: Callable[[], None]
    ) -> asyncio.Protocol:
        return self.links.accept_link(opened, vhost, check_user)

    def check_users(self) -> None:
        if self._links is not None:
            self._links.check_users()

    @property
    def links(self) -> LinkRegistry:
        self.router(self._default)
        assert self._links is not None, "created with the default router"
        return self._links

    def routing(self, vhost: str) -> OverlayRouter:
        """The router without the content exchange."""
        self.router(vhost)
        return self._routers[vhost]

    def console(self, vhost: str) -> ContentConsole:
        console = self._consoles.get(vhost)
        if console is None:
            space = self.router(vhost)
            from penstock.server.console import ContentConsole

            console = self._consoles[vhost] = ContentConsole(space, self.routing(vhost))
        return console

    def federation(self) -> OverlayStatus:
        """The status of all brokers, which are linked through the default virtual host."""
        if self._federation is None:
            router = self.routing(self._default)
            from penstock.server.overlay_status import OverlayStatus

            self._federation = OverlayStatus(router)
        return self._federation

    # Commands of the overlay.

    def connect(self, uri: str) -> None:
        self.links.connect(uri)

    def disconnect(self, name: str) -> None:
        self.links.disconnect(name)

    def shutdown(self) -> None:
        self._broker.shutdown()

    # Start and stop.

    def start(self) -> None:
        """Called when the listeners are open, because neighbours are sent the address."""
        self._started = True
        topology = self._broker.topology
        remembered = any(True for _ in topology.all("content"))
        if remembered or any(True for _ in topology.all("neighbour")) or self._settings.neighbours:
            for vhost in dict.fromkeys(key[1] for key, _ in topology.all("content")):
                if vhost in self._broker.vhosts:
                    self.router(vhost)
            self.links.start(self._uri)
        elif self._links is not None:
            self._links.start(self._uri)

    async def close(self) -> None:
        if self.controller is not None:
            self.controller.stop()
        if self._links is not None:
            await self._links.close()

    def close_files(self) -> None:
        if self._links is not None:
            self._links.close_files()

    def forget(self, vhost: str) -> None:
        self._routers.pop(vhost, None)
        self._spaces.pop(vhost, None)
        self._consoles.pop(vhost, None)
        for kind in ("content", "mailbox"):
            for key, _ in self._broker.topology.all(kind):
                if key[1] == vhost:
                    self._broker.topology.drop(key)
        self._broker.topology.drop(("content-number", vhost))

    def _make(self, vhost: str) -> OverlayRouter:
        from penstock.content.covering import CoveringMode
        from penstock.overlay.link_registry import LinkRegistry
        from penstock.overlay.persistence import RouterJournal
        from penstock.overlay.router import OverlayRouter
        from penstock.overlay.rules import CycleMode, RoutingRules
        from penstock.protocols.padres.mailbox import durable_mailbox

        broker, settings = self._broker, self._settings
        rules = RoutingRules(
            CycleMode(settings.cycles),
            CoveringMode(settings.subscription_covering),
            CoveringMode(settings.advertisement_covering),
            split=settings.split_composites,
            ordered_by=settings.ordered_by if vhost == self._default else "",
        )
        memory = RouterJournal(broker.topology, vhost)
        router = self._routers[vhost] = OverlayRouter(
            settings.id,
            rules,
            store=memory,
            clock=broker.kernel.loop.time,
            most=settings.max_asked,
        )
        if vhost == self._default:
            directory = broker.data / "log" / "overlay"
            self._links = LinkRegistry(
                broker.kernel, broker.vhosts[vhost], router, memory, self._store(), directory
            )
            self._links.restore_neighbours()
        for name, envelope in list(memory.registrations()):
            if name not in router.hops:
                router.attach(durable_mailbox(broker, broker.vhosts[vhost], name))
            router.restore(name, envelope)
        if vhost == self._default:
            self._control(router)
            if self._started:
                assert self._links is not None
                self._links.start(self._uri)
        return router

    def _control(self, router: OverlayRouter) -> None:
        from penstock.overlay.controller import OverlayController
        from penstock.overlay.heartbeats import HeartbeatSettings

        settings = self._settings
        router.trace_all = settings.trace_all
        self.controller = OverlayController(
            router,
            _BatchTimers(self._broker.kernel.write_batch),
            self,
            HeartbeatSettings(
                settings.heartbeat,
                settings.heartbeat_interval,
                settings.heartbeat_timeout,
                settings.heartbeat_threshold,
            ),
            uri=lambda: self._uri,
            info_interval=settings.info_interval,
            info_full=settings.info_full,
        )

    @property
    def _default(self) -> str:
        return self._broker.settings.default_vhost

    @property
    def _settings(self) -> OverlaySettings:
        return self._broker.settings.overlay

    @property
    def _uri(self) -> str:
        if self._settings.uri:
            return self._settings.uri
        ours = (one for one in self._broker.addresses if one.startswith("padres"))
        address = next(ours, "")
        return f"{address}/{self._settings.id}" if address else ""

    def _store(self) -> str:
        """An id of the data directory; neighbours notice if the data was lost."""
        path = self._broker.data / "log" / "overlay" / "store"
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(uuid.uuid4().hex)
            if (observer := self._broker.kernel.committer.observer) is not None:
                observer.append(path, 0, path.read_bytes())
        return path.read_text().strip()


class _BatchTimers:
    """Timers that run as write batches."""

    def __init__(self, write_batch: WriteBatch) -> None:
        self._write_batch = write_batch

    def later(self, seconds: float, action: Callable[[], None]) -> asyncio.TimerHandle:
        return self._write_batch.call_at(self._write_batch.loop.time() + seconds, action)
