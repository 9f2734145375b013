"""Sensors: registered, provisioned at the broker, configured, scheduled, retired.

A configuration is stored first, then published as a retained message on the sensor's command topic.
A status of the sensor that has its id acknowledges it; a trigger of the database records that.
`SensorCommandService.deliver_pending` applies schedules and publishes what the broker could not be
given before. Single reports are read from the pipeline's lake; PostgreSQL has only sums.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from penstock.client import BrokerUnreachable
from penstock.core.errors import NotFound
from penstock.core.logs import get_logger
from penstock_hives.database import Connection, DatabasePool
from penstock_hives.encoding import check_if_match
from penstock_hives.errors import FieldError, InvalidRequest, NotConfigured, RequestConflict
from penstock_hives.occupancy.service import require_owned_hive
from penstock_hives.pagination import CursorPage, decode_cursor, paginate
from penstock_hives.people.permissions import AppPermission, Caller
from penstock_hives.people.repository import AuditRepository
from penstock_hives.sensors.broker import SensorBroker
from penstock_hives.sensors.models import (
    NetworkConfig,
    ReportConfig,
    ReportSchedule,
    Sensor,
    SensorAccess,
    SensorCommand,
    SensorModem,
    SensorReport,
)
from penstock_hives.sensors.protocol import (
    FirmwareProfile,
    SensorConfiguration,
    SensorMessageKind,
    SensorTopic,
)
from penstock_hives.sensors.protocol.topic import command_topic, is_serial
from penstock_hives.sensors.repository import SensorRepository
from penstock_hives.webhooks.service import WebhookEvent, enqueue_event

log = get_logger(__name__)


Clock = Callable[[], datetime]

#: The behaviour of devices before their first configuration.
_DEFAULTS: Final = SensorConfiguration()
#: Advisory lock: one process at a time delivers pending commands.
_DELIVERY_LOCK: Final = 0x68697665
_CONFIG_FIELDS: Final = (
    *("threshold_cm", "report_interval_min", "status_interval_min", "event_threshold"),
)


class SensorService:
    def __init__(
        self,
        pool: DatabasePool,
        broker: SensorBroker,
        reports: SensorReportReader,
        address: str,
        clock: Clock,
    ) -> None:
        """`address` is the URL at which sensors connect to the broker."""
        self._pool = pool
        self._broker = broker
        self._reports = reports
        self._address = address
        self._clock = clock

    async def of_hive(self, caller: Caller, hive: int) -> list[Sensor]:
        async with self._pool.reading() as connection:
            await require_owned_hive(connection, caller, hive, AppPermission.READ_SENSORS)
            return await SensorRepository(connection).of_hive(hive, self._clock())

    async def of_account(
        self, caller: Caller, account: int, cursor: str | None, limit: int
    ) -> CursorPage[Sensor]:
        caller.require(AppPermission.READ_SENSORS, account)
        after = decode_cursor(cursor, int) or [0]
        async with self._pool.reading() as connection:
            sensors = SensorRepository(connection)
            found = await sensors.of_account(account, self._clock(), after[0], limit + 1)
        return paginate(found, limit, lambda sensor: [sensor.id])

    async def get(self, caller: Caller, sensor: int) -> Sensor:
        async with _reading(self._pool, self._clock, caller, sensor) as (_, found):
            return found

    async def register(self, caller: Caller, hive: int, values: Mapping[str, Any]) -> Sensor:
        if not is_serial(values["serial"]):
            raise InvalidRequest(
                f"serial {values['serial']!r} is not valid",
                [FieldError("serial", "has letters, digits, _ and - only")],
            )
        async with self._pool.transaction() as connection:
            account = await require_owned_hive(connection, caller, hive, AppPermission.EDIT_SENSORS)
            number = await SensorRepository(connection).add({**values, "hive_id": hive})
            made = await self._reread(connection, number)
            await _record_change(connection, caller, "register", made, account)
            return made

    async def edit(
        self, caller: Caller, sensor: int, values: Mapping[str, Any], seen: str | None
    ) -> Sensor:
        details = {"fields": sorted(values)}
        async with self._editing(caller, sensor, "edit", details) as (connection, found):
            check_if_match(found, seen)
            if "hive_id" in values:
                await require_owned_hive(
                    connection, caller, values["hive_id"], AppPermission.EDIT_SENSORS
                )
            await SensorRepository(connection).change(sensor, values)
            return await self._reread(connection, sensor)

    async def retire(self, caller: Caller, sensor: int) -> None:
        """It no longer counts and can no longer log in; its counts remain."""
        async with self._editing(caller, sensor, "retire") as (connection, found):
            if found.provisioned_at is not None:
                await self._broker.delete_user(_user(found.serial))
            changes = {"state": "retired", "provisioned_at": None}
            await SensorRepository(connection).change(sensor, changes)

    async def replace(self, caller: Caller, sensor: int, serial: str) -> Sensor:
        """Retire it, and register a new device with its name, profile and place."""
        async with self._pool.join_transaction():
            held = await self.get(caller, sensor)
            await self.retire(caller, sensor)
            names = ("name", "protocol", "profile", "direction_swapped")
            values = {name: getattr(held, name) for name in names}
            values["profile"] = dict(held.profile)
            return await self.register(caller, held.hive_id, {**values, "serial": serial})

    async def provision(self, caller: Caller, sensor: int) -> SensorAccess:
        """Create the sensor's user at the broker; a second call sets a new password."""
        async with self._editing(caller, sensor, "provision") as (connection, found):
            if found.state == "retired":
                raise RequestConflict(f"sensor {sensor} is retired")
            user, password = _user(found.serial), secrets.token_urlsafe(24)
            await self._broker.create_user(found.serial, user, password)
            sensors = SensorRepository(connection)
            parts = urlsplit(self._address)
            tls = parts.scheme in ("mqtts", "wss")
            network = NetworkConfig(
                apn=found.network.apn if found.network else "",
                broker_host=parts.hostname or "localhost",
                port=parts.port or (8883 if tls else 1883),
                tls=tls,
                user_ref=user,
            )
            await sensors.set_network(sensor, network)
            await sensors.change(sensor, {"provisioned_at": self._clock()})
        topics = tuple(SensorTopic(found.serial, kind).topic for kind in SensorMessageKind)
        return SensorAccess(
            found.serial, self._address, user, password, topics, command_topic(found.serial)
        )

    async def set_network(self, caller: Caller, sensor: int, network: NetworkConfig) -> Sensor:
        async with self._editing(caller, sensor, "network") as (connection, _):
            await SensorRepository(connection).set_network(sensor, network)
            return await self._reread(connection, sensor)

    async def set_modem(self, caller: Caller, sensor: int, modem: SensorModem) -> Sensor:
        async with self._editing(caller, sensor, "modem") as (connection, _):
            await SensorRepository(connection).set_modem(sensor, modem)
            return await self._reread(connection, sensor)

    async def reports(
        self, caller: Caller, sensor: int, begin: datetime, end: datetime, limit: int
    ) -> list[SensorReport]:
        async with _reading(self._pool, self._clock, caller, sensor) as (_, found):
            serial = found.serial
        return await self._reports.of(serial, begin, end, limit)

    def _editing(
        self, caller: Caller, sensor: int, action: str, details: Mapping[str, Any] | None = None
    ) -> AbstractAsyncContextManager[tuple[Connection, Sensor]]:
        return _editing(self._pool, self._clock, caller, sensor, action, details)

    async def _reread(self, connection: Connection, sensor: int) -> Sensor:
        return await _read_sensor(SensorRepository(connection), sensor, self._clock())


def _user(serial: str) -> str:
    return f"sensor-{serial}"


@asynccontextmanager
async def _reading(
    pool: DatabasePool, clock: Clock, caller: Caller, sensor: int
) -> AsyncIterator[tuple[Connection, Sensor]]:
    """A connection, and a sensor that the caller may read."""
    async with pool.reading() as connection:
        found, _ = await require_owned_sensor(
            connection, caller, sensor, clock(), AppPermission.READ_SENSORS
        )
        yield connection, found


@asynccontextmanager
async def _editing(
    pool: DatabasePool,
    clock: Clock,
    caller: Caller,
    sensor: int,
    action: str,
    details: Mapping[str, Any] | None = None,
) -> AsyncIterator[tuple[Connection, Sensor]]:
    """A transaction on a sensor that the caller may edit; the action is recorded at its end."""
    async with pool.transaction() as connection:
        found, account = await require_owned_sensor(
            connection, caller, sensor, clock(), AppPermission.EDIT_SENSORS, lock=True
        )
        yield connection, found
        changed = await _read_sensor(SensorRepository(connection), sensor, clock())
        await _record_change(connection, caller, action, changed, account, details)


async def _record_change(
    connection: Connection,
    caller: Caller,
    action: str,
    sensor: Sensor,
    account: int,
    details: Mapping[str, Any] | None = None,
) -> None:
    """In the audit log, and for the webhooks of the account."""
    audit = AuditRepository(connection)
    await audit.record(caller, action, "sensor", sensor.id, account, details)
    names = {"id": sensor.id, "serial": sensor.serial, "name": sensor.name, "state": sensor.state}
    changed = {"action": action, "sensor": names, "hive": {"id": sensor.hive_id}}
    await enqueue_event(connection, account, WebhookEvent.SENSOR, changed)


async def require_owned_sensor(
    connection: Connection,
    caller: Caller,
    sensor: int,
    now: datetime,
    permission: AppPermission,
    *,
    lock: bool = False,
) -> tuple[Sensor, int]:
    """A sensor and its account, if the caller has the permission; others are not found."""
    found = await SensorRepository(connection).get(sensor, now, lock=lock)
    if found is None or not caller.may(AppPermission.READ_SENSORS, found[1]):
        raise NotFound(f"there is no sensor {sensor} of yours")
    caller.require(permission, found[1])
    return found


async def _read_sensor(sensors: SensorRepository, sensor: int, now: datetime) -> Sensor:
    found = await sensors.get(sensor, now)
    assert found is not None, "sensors are retired, never deleted"
    return found[0]


class SensorCommandService:
    def __init__(self, pool: DatabasePool, broker: SensorBroker, clock: Clock) -> None:
        self._pool = pool
        self._broker = broker
        self._clock = clock

    async def configure(
        self, caller: Caller, sensor: int, wanted: Mapping[str, int]
    ) -> SensorCommand:
        async with _editing(self._pool, self._clock, caller, sensor, "configure", dict(wanted)) as (
            connection,
            found,
        ):
            config = await SensorRepository(connection).configure(sensor, _merged(found, wanted))
        await self._pool.after_commit(lambda: self._deliver(found, config))
        return (await self.of(caller, sensor, 1))[0]

    async def of(self, caller: Caller, sensor: int, limit: int) -> list[SensorCommand]:
        """The newest first."""
        async with _reading(self._pool, self._clock, caller, sensor) as (connection, _):
            return await SensorRepository(connection).commands(sensor, limit)

    async def schedules(self, caller: Caller, sensor: int) -> list[ReportSchedule]:
        async with _reading(self._pool, self._clock, caller, sensor) as (connection, _):
            return await SensorRepository(connection).schedules(sensor)

    async def schedule(
        self, caller: Caller, sensor: int, wanted: Sequence[Mapping[str, Any]]
    ) -> list[ReportSchedule]:
        """Replace all schedules; the sensor is configured when one begins or ends."""
        async with _editing(self._pool, self._clock, caller, sensor, "schedule") as (connection, _):
            sensors = SensorRepository(connection)
            await sensors.set_schedules(sensor, wanted)
            return await sensors.schedules(sensor)

    async def deliver_pending(self) -> int:
        """Apply due schedules and publish pending commands; return how many were published.

        Does nothing while another process does it."""
        delivered = 0
        async with self._pool.reading() as connection:
            row = await (
                await connection.execute(
                    "SELECT pg_try_advisory_lock(%s) AS got", (_DELIVERY_LOCK,)
                )
            ).fetchone()
            if row is None or not row["got"]:
                return 0
            try:
                sensors = SensorRepository(connection)
                for sensor, interval in await sensors.scheduled(self._clock()):
                    found = await _read_sensor(sensors, sensor, self._clock())
                    async with connection.transaction():
                        wanted = _merged(found, {"report_interval_min": interval})
                        await sensors.configure(sensor, wanted)
                for sensor in await sensors.pending():
                    found = await _read_sensor(sensors, sensor, self._clock())
                    if found.config is not None and await self._deliver(found, found.config):
                        delivered += 1
            finally:
                await connection.execute("SELECT pg_advisory_unlock(%s)", (_DELIVERY_LOCK,))
        return delivered

    async def _deliver(self, sensor: Sensor, config: ReportConfig) -> bool:
        """Publish a configuration; False if the broker cannot be reached now."""
        values = {name: getattr(config, name) for name in ("configuration_id", *_CONFIG_FIELDS)}
        body = SensorConfiguration(**values).encode(FirmwareProfile.from_json(sensor.profile))
        try:
            await self._broker.publish_retained(command_topic(sensor.serial), body)
        except (BrokerUnreachable, NotConfigured) as error:
            log.warning("sensor command not delivered", sensor=sensor.serial, reason=str(error))
            return False
        async with self._pool.reading() as connection:
            await SensorRepository(connection).mark_sent(config.configuration_id, self._clock())
        return True


def _merged(sensor: Sensor, wanted: Mapping[str, int]) -> dict[str, int]:
    """Missing values are those of the last configuration, or the defaults."""
    current = sensor.config or _DEFAULTS
    return {name: wanted.get(name, getattr(current, name)) for name in _CONFIG_FIELDS}


_FLOW: Final = "hives"
_TABLE: Final = "silver.reports"
_COLUMNS: Final = (
    *("at", "received_at", "kind", "total_in", "total_out", "delta_in", "delta_out", "quality"),
)


class SensorReportReader:
    """Reads in a thread, one request at a time: a day of a fleet is a few megabytes."""

    def __init__(self, lake: str | Path | None) -> None:
        self._lake = lake
        self._lock = asyncio.Lock()

    async def of(
        self, serial: str, begin: datetime, end: datetime, limit: int
    ) -> list[SensorReport]:
        """The newest first."""
        if self._lake is None:
            raise NotConfigured("no lake is configured: set PENSTOCK_HIVES_LAKE")
        async with self._lock:
            return await asyncio.to_thread(_read, self._lake, serial, begin, end, limit)


def _read(
    root: str | Path, serial: str, begin: datetime, end: datetime, limit: int
) -> list[SensorReport]:
    import pyarrow.compute as pc

    # Imported here, because it takes long.
    from penstock_spark.lake import Lake, StorageLocation

    table = Lake.open(StorageLocation.parse(root), _FLOW).table(_TABLE)
    if not table.exists():
        return []
    days = begin.astimezone(UTC).date(), end.astimezone(UTC).date()
    found: list[dict[str, Any]] = []
    files = table.files(day=days, received_at=(begin, end), sensor=(serial, serial))
    for file in reversed(files):
        rows = table.read_file(file, [*_COLUMNS, "sensor"]).filter(
            (pc.field("sensor") == serial)
            & (pc.field("received_at") >= begin)
            & (pc.field("received_at") < end)
        )
        found += rows.select(list(_COLUMNS)).to_pylist()
        if len(found) >= limit * 2:  # batches overlap a little in time
            break
    found.sort(key=lambda row: row["received_at"], reverse=True)
    return [SensorReport(**row) for row in found[:limit]]
