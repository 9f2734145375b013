"""Every path there is."""

from __future__ import annotations

from typing import Final

from penstock.server.management import (
    bindings,
    connections,
    content,
    definitions,
    exchanges,
    health,
    messages,
    metrics,
    overlay,
    overview,
    page,
    queues,
    streams,
    users,
    vhosts,
)
from penstock.server.management.routing import Route

ROUTES: Final[tuple[Route, ...]] = (
    *overview.routes,
    *vhosts.routes,
    *connections.routes,
    *exchanges.routes,
    *queues.routes,
    *bindings.routes,
    *messages.routes,
    *users.routes,
    *definitions.routes,
    *streams.routes,
    *content.routes,
    *overlay.routes,
    *health.routes,
    *metrics.routes,
    *page.routes,
)
