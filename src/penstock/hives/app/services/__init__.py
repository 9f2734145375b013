"""The rules of the application: one class for each feature group, over the repositories.

`Services` has all of them for one installation. Nothing here knows HTTP: endpoints, dashboards and
commands ask alike, each as some `Caller`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Self

from penstock.hives.app.broker import SensorBroker
from penstock.hives.app.repositories.pool import Pool
from penstock.hives.app.services.accounts import Accounts
from penstock.hives.app.services.analytics import Activity, Analytics, Metrics
from penstock.hives.app.services.commands import Commands
from penstock.hives.app.services.deals import Deals
from penstock.hives.app.services.formulas import check_formula
from penstock.hives.app.services.hives import Hives
from penstock.hives.app.services.images import Images
from penstock.hives.app.services.invitations import Invitations
from penstock.hives.app.services.messages import Messages
from penstock.hives.app.services.occupancy import Occupancies
from penstock.hives.app.services.people import ApiKeys, Users
from penstock.hives.app.services.pictures import Pictures
from penstock.hives.app.services.places import Favourites, Notifications
from penstock.hives.app.services.plans import Plans
from penstock.hives.app.services.reports import Reports
from penstock.hives.app.services.sensors import Sensors
from penstock.hives.app.settings import Settings


@dataclass(frozen=True, slots=True)
class Services:
    users: Users
    keys: ApiKeys
    messages: Messages
    accounts: Accounts
    invitations: Invitations
    plans: Plans
    hives: Hives
    occupancy: Occupancies
    favourites: Favourites
    notifications: Notifications
    deals: Deals
    sensors: Sensors
    commands: Commands
    images: Images
    analytics: Analytics
    metrics: Metrics
    activity: Activity

    @classmethod
    def over(
        cls, settings: Settings, pool: Pool, broker: SensorBroker, clock: Callable[[], datetime]
    ) -> Self:
        reports = Reports(settings.lake)
        return cls(
            users=Users(pool, clock),
            keys=ApiKeys(pool, clock),
            messages=Messages(pool),
            accounts=Accounts(pool, clock),
            invitations=Invitations(pool, clock),
            plans=Plans(pool, clock),
            hives=Hives(pool, clock),
            occupancy=Occupancies(pool, clock),
            favourites=Favourites(pool, clock),
            notifications=Notifications(pool, clock),
            deals=Deals(pool, clock),
            sensors=Sensors(pool, broker, reports, settings.sensor_address, clock),
            commands=Commands(pool, broker, clock),
            images=Images(pool, Pictures(settings.images)),
            analytics=Analytics(pool, clock),
            metrics=Metrics(pool, clock, check_formula),
            activity=Activity(pool, clock),
        )
