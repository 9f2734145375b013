"""Everything one installation of the application shares: opened as one, closed as one.

    async with open_resources(settings, identify) as resources:
        app = create_app(resources)

Nothing is connected to before it is needed: the application starts while its database or broker is
down, says 503 to who needs them, and finds them when they are back.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TypeVar

from penstock.core.errors import AuthenticationFailed
from penstock.hives.app.api.limits import Limits
from penstock.hives.app.api.public import PublicAnswers
from penstock.hives.app.broker import Broker, SensorBroker
from penstock.hives.app.domain.callers import ANONYMOUS, Caller
from penstock.hives.app.domain.identity import Identify
from penstock.hives.app.memory import Memory
from penstock.hives.app.repositories.pool import Pool
from penstock.hives.app.services import Services
from penstock.hives.app.settings import Settings
from penstock.store.cache import Cache, open_cache

T = TypeVar("T")


def utc_now() -> datetime:
    return datetime.now(UTC)


@dataclass(slots=True)
class Resources:
    settings: Settings
    pool: Pool
    cache: Cache
    broker: SensorBroker
    identify: Identify
    #: Who answers anonymous and free callers; nobody in particular, where there is none.
    public: PublicAnswers | None = None
    clock: Callable[[], datetime] = utc_now
    memory: Memory = field(default_factory=Memory)
    services: Services = field(init=False)
    limits: Limits = field(init=False)

    def __post_init__(self) -> None:
        given = self.settings
        self.services = Services.over(given, self.pool, self.broker, self.clock)
        self.limits = Limits(given.rate_known, given.rate_anonymous, given.rate_burst)

    async def once(self, key: str, make: Callable[[], Awaitable[T]]) -> T:
        """What everybody is answered alike, made once a minute at most."""
        return await self.memory.get(key, make)

    async def identified(self, authorization: str | None, key: str | None = None) -> Caller:
        """Who a request's headers say it is from. What does not hold is refused, never passed
        over."""
        if authorization is not None:
            scheme, _, token = authorization.partition(" ")
            if scheme.lower() != "bearer" or not token.strip():
                raise AuthenticationFailed("Authorization should be: Bearer, and a token")
            identity = await self.identify.verify(token.strip())
            return await self.services.users.caller(identity.uid)
        if key is not None:
            return await self.services.keys.caller(key)
        return ANONYMOUS


@asynccontextmanager
async def open_resources(
    settings: Settings,
    identify: Identify,
    *,
    public: PublicAnswers | None = None,
    broker: SensorBroker | None = None,
    clock: Callable[[], datetime] = utc_now,
) -> AsyncIterator[Resources]:
    async with AsyncExitStack() as stack:
        pool = Pool(
            settings.database, settings.pool_size, settings.pool_wait, settings.statement_seconds
        )
        await stack.enter_async_context(pool)
        cache = await stack.enter_async_context(open_cache(settings.cache))
        held = broker or Broker(settings.broker, settings.management)
        stack.push_async_callback(held.close)
        yield Resources(settings, pool, cache, held, identify, public, clock)
