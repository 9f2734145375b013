"""All shovels and federation links of a broker, kept as parameters and policies demand.

The modules of shovels and links, and the clients that they use, are loaded with the first one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from penstock.broker.parameters import SHOVEL, UPSTREAM, UPSTREAM_SET
from penstock.broker.vhost import VirtualHost
from penstock.core.errors import NotFound, PreconditionFailed
from penstock.core.logs import get_logger
from penstock.federation.host import FederationHost

if TYPE_CHECKING:
    from penstock.federation.link import FederationLink
    from penstock.federation.shovel import RunningShovel
    from penstock.federation.upstream import Upstream

_log = get_logger("penstock.federation")


def check_federation_parameter(component: str, name: str, value: Any) -> None:
    """Raises `PreconditionFailed` with all reasons."""
    from penstock.federation.shovel import ShovelDefinition
    from penstock.federation.upstream import Upstream, check_upstream_set

    if component == SHOVEL:
        ShovelDefinition.parse(name, value)
    elif component == UPSTREAM:
        Upstream.parse(name, value)
    elif component == UPSTREAM_SET:
        check_upstream_set(name, value)


class FederationRegistry:
    def __init__(self, host: FederationHost) -> None:
        self._host = host
        self._shovels: dict[tuple[str, str], RunningShovel] = {}
        self._links: dict[tuple[str, str, str, str], FederationLink] = {}
        self._pending: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False

    def start(self) -> None:
        for vhost in self._host.vhosts.values():
            self.watch(vhost)

    def watch(self, vhost: VirtualHost) -> None:
        vhost.on_changed = lambda: self._schedule(vhost)
        self._schedule(vhost)

    def forget(self, vhost: str) -> None:
        """The virtual host is deleted."""
        for key in [key for key in self._shovels if key[0] == vhost]:
            self._run(self._shovels.pop(key).delete())
        for link in [link for key, link in list(self._links.items()) if key[0] == vhost]:
            self._remove_link(link)

    async def close(self) -> None:
        self._closed = True
        shovels = [shovel.transfer.stop() for shovel in self._shovels.values()]
        links = [link.stop() for link in self._links.values()]
        await asyncio.gather(*shovels, *links, *self._tasks, return_exceptions=True)

    # For the management API.

    def shovels(self) -> list[RunningShovel]:
        return list(self._shovels.values())

    def shovel(self, vhost: str, name: str) -> RunningShovel:
        try:
            return self._shovels[vhost, name]
        except KeyError:
            raise NotFound(f"no shovel '{name}' in vhost '{vhost}'") from None

    def links(self) -> list[FederationLink]:
        return list(self._links.values())

    def link(self, vhost: str, identity: str) -> FederationLink:
        for link in self._links.values():
            if link.vhost.name == vhost and link.id == identity:
                return link
        raise NotFound(f"no federation link '{identity}' in vhost '{vhost}'")

    # Changes.

    def _schedule(self, vhost: VirtualHost) -> None:
        """Once for all changes of one pass of the loop."""
        if vhost.name not in self._pending and not self._closed:
            self._pending.add(vhost.name)
            self._host.kernel.loop.call_soon(self._reconcile, vhost)

    def _reconcile(self, vhost: VirtualHost) -> None:
        self._pending.discard(vhost.name)
        if self._closed or self._host.vhosts.get(vhost.name) is not vhost:
            return
        self._reconcile_shovels(vhost)
        self._reconcile_links(vhost)

    def _reconcile_shovels(self, vhost: VirtualHost) -> None:
        stored = vhost.parameters.of(SHOVEL)
        running = {key[1]: each for key, each in self._shovels.items() if key[0] == vhost.name}
        if not stored and not running:
            return
        from penstock.federation.shovel import RunningShovel, ShovelDefinition

        wanted = {}
        for name, value in stored.items():
            try:
                wanted[name] = ShovelDefinition.parse(name, value)
            except PreconditionFailed as error:  # of another version
                _log.error("shovel refused", name=name, reason=str(error))
        for name, shovel in running.items():
            if wanted.get(name) != shovel.definition:
                del self._shovels[vhost.name, name]
                self._run(shovel.delete())
        for name, definition in wanted.items():
            if (vhost.name, name) not in self._shovels:
                shovel = RunningShovel(self._host, vhost, definition)
                self._shovels[vhost.name, name] = shovel
                shovel.transfer.start()

    def _reconcile_links(self, vhost: VirtualHost) -> None:
        upstreams = vhost.parameters.of(UPSTREAM)
        ours = {key: link for key, link in self._links.items() if key[0] == vhost.name}
        if not upstreams and not ours:
            return
        from penstock.federation.link import ExchangeLink, QueueLink

        wanted = {
            (vhost.name, kind, name, upstream.name): upstream
            for kind, name, upstream in self._federated(vhost, upstreams)
        }
        for key, link in ours.items():
            if wanted.get(key) != link.upstream:
                self._remove_link(link)
            else:
                link.refresh()
        for key, upstream in wanted.items():
            if key not in self._links:
                make = ExchangeLink if key[1] == "exchange" else QueueLink
                link = self._links[key] = make(self._host, vhost, key[2], upstream)
                link.start()

    def _federated(
        self, vhost: VirtualHost, upstreams: dict[str, Any]
    ) -> Iterator[tuple[str, str, Upstream]]:
        from penstock.federation.upstream import choose_upstreams

        sets = vhost.parameters.of(UPSTREAM_SET)
        for exchange in vhost.exchanges.values():
            if exchange.name and not exchange.internal and exchange.policy.definition:
                for upstream in choose_upstreams(exchange.policy.definition, upstreams, sets):
                    yield "exchange", exchange.name, upstream
        for queue in vhost.queues.values():
            is_link = queue.name.startswith("federation: ")
            if queue.owner is None and queue.policy.definition and not is_link:
                for upstream in choose_upstreams(queue.policy.definition, upstreams, sets):
                    yield "queue", queue.name, upstream

    def _remove_link(self, link: FederationLink) -> None:
        key = (link.vhost.name, link.kind, link.name, link.upstream.name)
        if self._links.get(key) is link:
            del self._links[key]
        self._run(link.stop(removed=True))

    def _run(self, stopping: Any) -> None:
        task = self._host.kernel.loop.create_task(stopping)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
