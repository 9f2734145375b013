"""`/api/shovels` and `/api/federation-links`: their states, restart and deletion."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from penstock.broker.parameters import SHOVEL
from penstock.server.management.api_call import AccessLevel, ApiCall, ApiRoute
from penstock.server.management.http import NO_CONTENT, HttpResponse
from penstock.server.management.list_query import Row, item_response, list_response
from penstock.server.management.overview import node_name

#: What the parameter `name` of lists of links is looked for in.
LINK_NAMES: Final = ("upstream", "exchange", "queue")


def _shovel_rows(call: ApiCall) -> Iterator[Row]:
    vhosts = {vhost.name for vhost in call.vhosts()}
    for shovel in call.broker.federation.shovels():
        if shovel.vhost.name in vhosts:
            yield {"node": node_name(call.broker), **shovel.describe()}


async def list_shovels(call: ApiCall) -> HttpResponse:
    """List the shovels and their states: all, or those of a virtual host."""
    return await list_response(call, _shovel_rows(call))


async def get_shovel(call: ApiCall) -> HttpResponse:
    """Describe a shovel and its state."""
    shovel = call.broker.federation.shovel(call.vhost.name, call.name)
    return item_response(call, {"node": node_name(call.broker), **shovel.describe()})


async def delete_shovel(call: ApiCall) -> HttpResponse:
    """Delete a shovel."""
    call.broker.federation.shovel(call.vhost.name, call.name)
    call.vhost.set_parameter(SHOVEL, call.name, None)
    call.done()
    return NO_CONTENT


async def restart_shovel(call: ApiCall) -> HttpResponse:
    """Restart a shovel."""
    await call.broker.federation.shovel(call.vhost.name, call.name).transfer.restart()
    return NO_CONTENT


def _link_rows(call: ApiCall, *, down: bool = False) -> Iterator[Row]:
    vhosts = {vhost.name for vhost in call.vhosts()}
    for link in call.broker.federation.links():
        described = link.describe()
        if link.vhost.name in vhosts and not (down and described["status"] == "running"):
            yield {"node": node_name(call.broker), **described}


async def list_links(call: ApiCall) -> HttpResponse:
    """List the federation links and their states: all, or those of a virtual host."""
    return await list_response(call, _link_rows(call), LINK_NAMES)


async def list_links_down(call: ApiCall) -> HttpResponse:
    """List the federation links that are not running: all, or those of a virtual host."""
    return await list_response(call, _link_rows(call, down=True), LINK_NAMES)


async def restart_link(call: ApiCall) -> HttpResponse:
    """Restart a federation link."""
    link = call.broker.federation.link(call.vhost.name, call.names["id"])
    await link.transfer.restart()
    return NO_CONTENT


_MONITORING: Final = AccessLevel.MONITORING
_ADMINISTRATOR: Final = AccessLevel.ADMINISTRATOR
_SHOVEL: Final = "/api/shovels/vhost/{vhost}/{name}"
_LINKS: Final = "/api/federation-links"

routes: Final = (
    ApiRoute("GET", "/api/shovels", list_shovels, _MONITORING),
    ApiRoute("GET", "/api/shovels/{vhost}", list_shovels, _MONITORING),
    ApiRoute("GET", "/api/shovels/{vhost}/{name}", get_shovel, _MONITORING),
    ApiRoute("GET", _SHOVEL, get_shovel, _MONITORING),
    ApiRoute("DELETE", _SHOVEL, delete_shovel, _ADMINISTRATOR),
    ApiRoute("DELETE", f"{_SHOVEL}/restart", restart_shovel, _ADMINISTRATOR),
    ApiRoute("GET", _LINKS, list_links, _MONITORING),
    ApiRoute("GET", f"{_LINKS}/state/down", list_links_down, _MONITORING),
    ApiRoute("GET", f"{_LINKS}/{{vhost}}", list_links, _MONITORING),
    ApiRoute("GET", f"{_LINKS}/{{vhost}}/state/down", list_links_down, _MONITORING),
    ApiRoute("DELETE", f"{_LINKS}/vhost/{{vhost}}/{{id}}/restart", restart_link, _ADMINISTRATOR),
    ApiRoute(
        "DELETE", f"{_LINKS}/vhost/{{vhost}}/{{id}}/{{node}}/restart", restart_link, _ADMINISTRATOR
    ),
)
