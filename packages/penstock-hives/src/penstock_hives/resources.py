"""Services, connections and settings of one process of the application.

    async with open_resources(settings, identify) as resources:
        app = create_app(resources)

Database, cache and broker are connected on first use: the application starts without them, responds
503 where they are needed, and reconnects when they are back.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Self

from penstock.core.errors import AuthenticationFailed
from penstock_hives.alerts.service import NotificationSettingService
from penstock_hives.analytics.service import (
    ActivityService,
    AnalyticsService,
    MetricService,
)
from penstock_hives.api.rate_limiter import RateLimiter, open_counters
from penstock_hives.billing.service import PlanService
from penstock_hives.database import DatabasePool
from penstock_hives.deals.service import DealService
from penstock_hives.demo_data import DEMO_UIDS
from penstock_hives.identity.tokens import IdentityVerifier
from penstock_hives.images.service import ImageService, ImageStore
from penstock_hives.messages.follower_messages import FollowerMessageService
from penstock_hives.messages.service import MessageService
from penstock_hives.occupancy.service import OccupancyService
from penstock_hives.people.permissions import ANONYMOUS, Caller
from penstock_hives.people.service import (
    AccountService,
    ApiKeyService,
    InvitationService,
    UserService,
)
from penstock_hives.places.service import FavouriteService, HiveService
from penstock_hives.sensors.broker import SensorBroker
from penstock_hives.sensors.service import SensorCommandService, SensorReportReader, SensorService
from penstock_hives.settings import HivesSettings
from penstock_store import StoreUnavailable
from penstock_store.cache import Cache, StaleIfErrorCache, open_cache

if TYPE_CHECKING:
    from penstock_hives.public.reader import PublicReader


@dataclass(frozen=True, slots=True)
class Services:
    """The services of all features, for endpoints and dashboards; they know nothing of HTTP."""

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
    followers: FollowerMessageService

    @classmethod
    def create(
        cls,
        settings: HivesSettings,
        pool: DatabasePool,
        broker: SensorBroker,
        clock: Callable[[], datetime],
        public: PublicReader | None = None,
    ) -> Self:
        reports = SensorReportReader(settings.lake)
        return cls(
            users=UserService(pool, clock),
            keys=ApiKeyService(pool, clock),
            messages=MessageService(pool),
            accounts=AccountService(pool, clock),
            invitations=InvitationService(pool, clock),
            plans=PlanService(pool, clock),
            hives=HiveService(pool, clock, None if public is None else public.summaries),
            occupancy=OccupancyService(pool, clock),
            favourites=FavouriteService(pool, clock),
            notifications=NotificationSettingService(pool, clock),
            deals=DealService(pool, clock),
            sensors=SensorService(pool, broker, reports, settings.sensor_address, clock),
            commands=SensorCommandService(pool, broker, clock),
            images=ImageService(pool, ImageStore(settings.images)),
            analytics=AnalyticsService(pool, clock),
            metrics=MetricService(pool, clock),
            activity=ActivityService(pool, clock),
            followers=FollowerMessageService(pool, clock),
        )


def utc_now() -> datetime:
    return datetime.now(UTC)


@dataclass(slots=True)
class Resources:
    settings: HivesSettings
    pool: DatabasePool
    cache: Cache
    broker: SensorBroker
    identify: IdentityVerifier
    #: Cached reads for anonymous and free callers; None: they read from the database, too.
    public: PublicReader | None = None
    clock: Callable[[], datetime] = utc_now
    callers: StaleIfErrorCache = field(default_factory=StaleIfErrorCache)
    services: Services = field(init=False)
    limits: RateLimiter = field(init=False)

    def __post_init__(self) -> None:
        given = self.settings
        self.services = Services.create(given, self.pool, self.broker, self.clock, self.public)
        rates = given.rate_known, given.rate_anonymous, given.rate_burst
        counts = open_counters(given.rate_counts)
        self.limits = RateLimiter(*rates, counts, accounts=given.rate_accounts)

    async def identify_caller(self, authorization: str | None, key: str | None = None) -> Caller:
        """The caller by the headers of a request; raises `AuthenticationFailed`."""
        if authorization is not None:
            uid = await self._verify_token(authorization)
            return self._check_production(await self.services.users.caller(uid))
        if key is not None:
            return self._check_production(await self.services.keys.caller(key))
        return ANONYMOUS

    async def identify_reader(self, authorization: str | None, key: str | None = None) -> Caller:
        """The same for public reads. Callers without live access are cached for a minute, so that
        their reads do not reach the database; while it is unavailable they are anonymous."""
        if authorization is None:
            return await self.identify_caller(None, key)
        uid = await self._verify_token(authorization)
        find = self.services.users.caller
        try:
            caller = await self.callers.get(f"user:{uid}", lambda: find(uid))
            return self._check_production(await find(uid) if caller.reads_live else caller)
        except StoreUnavailable:
            return ANONYMOUS

    def _check_production(self, caller: Caller) -> Caller:
        if self.settings.production and caller.uid in DEMO_UIDS:
            raise AuthenticationFailed(
                f"{caller.uid} is a demonstration user, refused in production: sign up"
            )
        return caller

    async def _verify_token(self, authorization: str) -> str:
        """The subject of the token."""
        scheme, _, token = authorization.partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            raise AuthenticationFailed("the header must be `Authorization: Bearer TOKEN`")
        return (await self.identify.verify(token.strip())).uid


@asynccontextmanager
async def open_resources(
    settings: HivesSettings,
    identify: IdentityVerifier,
    *,
    public: PublicReader | None = None,
    broker: SensorBroker | None = None,
    clock: Callable[[], datetime] = utc_now,
) -> AsyncIterator[Resources]:
    async with AsyncExitStack() as stack:
        pool = DatabasePool(
            settings.database, settings.pool_size, settings.pool_wait, settings.statement_seconds
        )
        await stack.enter_async_context(pool)
        cache = await stack.enter_async_context(open_cache(settings.cache))
        sensors = broker or SensorBroker(settings.broker, settings.management)
        stack.push_async_callback(sensors.close)
        yield Resources(settings, pool, cache, sensors, identify, public, clock)
