"""Everything one installation of the application shares: opened as one, closed as one.

    async with open_resources(settings, identify) as resources:
        app = create_app(resources)

Nothing is connected to before it is needed: the application starts while its database or broker is
down, says 503 to who needs them, and finds them when they are back.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime

from penstock.core.errors import AuthenticationFailed
from penstock.hives.app.api.limits import Limits, open_counts
from penstock.hives.app.api.public import PublicAnswers
from penstock.hives.app.broker import Broker, SensorBroker
from penstock.hives.app.demonstration import DEMO_UIDS
from penstock.hives.app.domain.callers import ANONYMOUS, Caller
from penstock.hives.app.domain.identity import Identify
from penstock.hives.app.memory import Memory
from penstock.hives.app.repositories.pool import Pool
from penstock.hives.app.services import Services
from penstock.hives.app.settings import Settings
from penstock.store import StoreUnavailable
from penstock.store.cache import Cache, open_cache


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
        rates = given.rate_known, given.rate_anonymous, given.rate_burst
        self.limits = Limits(*rates, open_counts(given.rate_counts))

    async def identified(self, authorization: str | None, key: str | None = None) -> Caller:
        """Who a request's headers say it is from. What does not hold is refused, never passed
        over."""
        if authorization is not None:
            uid = await self._vouched(authorization)
            return self._real(await self.services.users.caller(uid))
        if key is not None:
            return self._real(await self.services.keys.caller(key))
        return ANONYMOUS

    async def recalled(self, authorization: str | None, key: str | None = None) -> Caller:
        """The same for what anybody may read: who does not pay is known as of the last minute, so
        that their reads do not reach the database either. While it is away, whoever is vouched for
        is nobody in particular."""
        if authorization is None:
            return await self.identified(None, key)
        uid = await self._vouched(authorization)
        find = self.services.users.caller
        try:
            caller = await self.memory.get(f"user:{uid}", lambda: find(uid))
            return self._real(await find(uid) if caller.fresh else caller)
        except StoreUnavailable:
            return ANONYMOUS

    def _real(self, caller: Caller) -> Caller:
        """People of the demonstration are nobody in production."""
        if self.settings.production and caller.uid in DEMO_UIDS:
            raise AuthenticationFailed(
                f"{caller.uid} belongs to the demonstration and is refused in production: sign up"
            )
        return caller

    async def _vouched(self, authorization: str) -> str:
        """Whose token it is."""
        scheme, _, token = authorization.partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            raise AuthenticationFailed("Authorization should be: Bearer, and a token")
        return (await self.identify.verify(token.strip())).uid


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
