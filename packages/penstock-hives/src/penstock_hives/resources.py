"""Everything one installation of the application shares: opened as one, closed as one.

    async with open_resources(settings, identify) as resources:
        app = create_app(resources)

Nothing is connected to before it is needed: the application starts while its database or broker is
down, says 503 to who needs them, and finds them when they are back.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, Self, TypeVar, cast

from penstock.core.errors import AuthenticationFailed
from penstock.core.retry import is_transient
from penstock_hives.analytics.service import (
    ActivityService,
    AnalyticsService,
    MetricService,
    check_formula,
)
from penstock_hives.api.rate_limiter import RateLimiter, open_counters
from penstock_hives.api.responses import PublicReads
from penstock_hives.billing.service import PlanService
from penstock_hives.database import DatabasePool
from penstock_hives.deals.service import DealService
from penstock_hives.demo_data import DEMO_UIDS
from penstock_hives.identity.tokens import IdentityVerifier
from penstock_hives.images.service import ImageService, ImageStore
from penstock_hives.messages.service import MessageService
from penstock_hives.occupancy.service import OccupancyService
from penstock_hives.people.permissions import ANONYMOUS, Caller
from penstock_hives.people.service import (
    AccountService,
    ApiKeyService,
    InvitationService,
    UserService,
)
from penstock_hives.places.service import FavouriteService, HiveService, NotificationSettingService
from penstock_hives.sensors.broker import SensorBroker
from penstock_hives.sensors.service import SensorCommandService, SensorReportReader, SensorService
from penstock_hives.settings import HivesSettings
from penstock_store import StoreUnavailable
from penstock_store.cache import Cache, SingleFlight, open_cache

# The rules of the application: one class for each feature group, over the repositories.
#
# `Services` has all of them for one installation. Nothing here knows HTTP: endpoints, dashboards
# and commands ask alike, each as some `Caller`.


@dataclass(frozen=True, slots=True)
class Services:
    users: UserService
    keys: ApiKeyService
    messages: MessageService
    accounts: AccountService
    invitations: InvitationService
    plans: PlanService
    hives: HiveService
    occupancy: OccupancyService
    favourites: FavouriteService
    notifications: NotificationSettingService
    deals: DealService
    sensors: SensorService
    commands: SensorCommandService
    images: ImageService
    analytics: AnalyticsService
    metrics: MetricService
    activity: ActivityService

    @classmethod
    def over(
        cls,
        settings: HivesSettings,
        pool: DatabasePool,
        broker: SensorBroker,
        clock: Callable[[], datetime],
    ) -> Self:
        reports = SensorReportReader(settings.lake)
        return cls(
            users=UserService(pool, clock),
            keys=ApiKeyService(pool, clock),
            messages=MessageService(pool),
            accounts=AccountService(pool, clock),
            invitations=InvitationService(pool, clock),
            plans=PlanService(pool, clock),
            hives=HiveService(pool, clock),
            occupancy=OccupancyService(pool, clock),
            favourites=FavouriteService(pool, clock),
            notifications=NotificationSettingService(pool, clock),
            deals=DealService(pool, clock),
            sensors=SensorService(pool, broker, reports, settings.sensor_address, clock),
            commands=SensorCommandService(pool, broker, clock),
            images=ImageService(pool, ImageStore(settings.images)),
            analytics=AnalyticsService(pool, clock),
            metrics=MetricService(pool, clock, check_formula),
            activity=ActivityService(pool, clock),
        )


# What was found out lately, remembered for a minute: never a stampede on PostgreSQL.
#
# However many ask for what is not remembered, it is made once. Should making it fail while an older
# one is still at hand, that one is served. While the database is away it is tried once in a while,
# and nobody else waits for it.

T = TypeVar("T")

FRESH_SECONDS: Final = 60.0
#: How old an answer may be while no newer one can be made.
STALE_SECONDS: Final = 600.0
MAX_ENTRIES: Final = 10_000
#: Between two tries of a database that was away.
RETRY_SECONDS: Final = 2.0


class StaleIfErrorCache:
    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._flight: SingleFlight[Any] = SingleFlight()
        self._held: OrderedDict[str, tuple[float, Any]] = OrderedDict()
        self._away_until = float("-inf")

    async def get(self, key: str, make: Callable[[], Awaitable[T]]) -> T:
        since, held = self._held.get(key, (-STALE_SECONDS, None))
        age = self._clock() - since
        usable = key in self._held and age < STALE_SECONDS
        if usable and (age < FRESH_SECONDS or self._clock() < self._away_until):
            return cast(T, held)
        if self._clock() < self._away_until:
            raise StoreUnavailable("the database was away a moment ago")

        async def made() -> T:
            value = await make()
            self._held[key] = (self._clock(), value)
            self._held.move_to_end(key)
            if len(self._held) > MAX_ENTRIES:
                self._held.popitem(last=False)
            return value

        try:
            return cast(T, await self._flight.run(key, made))
        except Exception as error:
            if isinstance(error, StoreUnavailable):
                self._away_until = self._clock() + RETRY_SECONDS
            if usable and is_transient(error):
                return cast(T, held)
            raise


def utc_now() -> datetime:
    return datetime.now(UTC)


@dataclass(slots=True)
class Resources:
    settings: HivesSettings
    pool: DatabasePool
    cache: Cache
    broker: SensorBroker
    identify: IdentityVerifier
    #: Who answers anonymous and free callers; nobody in particular, where there is none.
    public: PublicReads | None = None
    clock: Callable[[], datetime] = utc_now
    memory: StaleIfErrorCache = field(default_factory=StaleIfErrorCache)
    services: Services = field(init=False)
    limits: RateLimiter = field(init=False)

    def __post_init__(self) -> None:
        given = self.settings
        self.services = Services.over(given, self.pool, self.broker, self.clock)
        rates = given.rate_known, given.rate_anonymous, given.rate_burst
        self.limits = RateLimiter(*rates, open_counters(given.rate_counts))

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
    settings: HivesSettings,
    identify: IdentityVerifier,
    *,
    public: PublicReads | None = None,
    broker: SensorBroker | None = None,
    clock: Callable[[], datetime] = utc_now,
) -> AsyncIterator[Resources]:
    async with AsyncExitStack() as stack:
        pool = DatabasePool(
            settings.database, settings.pool_size, settings.pool_wait, settings.statement_seconds
        )
        await stack.enter_async_context(pool)
        cache = await stack.enter_async_context(open_cache(settings.cache))
        held = broker or SensorBroker(settings.broker, settings.management)
        stack.push_async_callback(held.close)
        yield Resources(settings, pool, cache, held, identify, public, clock)
