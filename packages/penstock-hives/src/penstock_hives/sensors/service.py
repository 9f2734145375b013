"""Sensors: registered, let in at the broker, looked after, retired.

What they are told is in `commands.py`.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Mapping, Sequence
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

log = get_logger(__name__)


class SensorService:
    def __init__(
        self,
        pool: DatabasePool,
        broker: SensorBroker,
        reports: SensorReportReader,
        address: str,
        clock: Callable[[], datetime],
    ) -> None:
        """`address` is where sensors connect to the broker."""
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
        async with self._pool.reading() as connection:
            return (
                await require_owned_sensor(
                    connection, caller, sensor, self._clock(), AppPermission.READ_SENSORS
                )
            )[0]

    async def register(self, caller: Caller, hive: int, values: Mapping[str, Any]) -> Sensor:
        if not is_serial(values["serial"]):
            raise InvalidRequest(
                "no such serial", [FieldError("serial", "has letters, digits, _ and - only")]
            )
        async with self._pool.transaction() as connection:
            account = await require_owned_hive(connection, caller, hive, AppPermission.EDIT_SENSORS)
            sensors = SensorRepository(connection)
            number = await sensors.add({**values, "hive_id": hive})
            await AuditRepository(connection).record(caller, "register", "sensor", number, account)
            return _there(await sensors.get(number, self._clock()), number)[0]

    async def edit(
        self, caller: Caller, sensor: int, values: Mapping[str, Any], seen: str | None
    ) -> Sensor:
        async with self._pool.transaction() as connection:
            held, account = await require_owned_sensor(
                connection, caller, sensor, self._clock(), AppPermission.EDIT_SENSORS, lock=True
            )
            check_if_match(held, seen)
            if "hive_id" in values:
                await require_owned_hive(
                    connection, caller, values["hive_id"], AppPermission.EDIT_SENSORS
                )
            sensors = SensorRepository(connection)
            await sensors.change(sensor, values)
            await AuditRepository(connection).record(
                caller, "edit", "sensor", sensor, account, {"fields": sorted(values)}
            )
            return _there(await sensors.get(sensor, self._clock()), sensor)[0]

    async def retire(self, caller: Caller, sensor: int) -> None:
        """It no longer counts, nor may it sign in; what it counted stays."""
        async with self._pool.transaction() as connection:
            held, account = await require_owned_sensor(
                connection, caller, sensor, self._clock(), AppPermission.EDIT_SENSORS, lock=True
            )
            if held.provisioned_at is not None:
                await self._broker.dismiss(_user(held.serial))
            sensors = SensorRepository(connection)
            await sensors.change(sensor, {"state": "retired", "provisioned_at": None})
            await AuditRepository(connection).record(caller, "retire", "sensor", sensor, account)

    async def provision(self, caller: Caller, sensor: int) -> SensorAccess:
        """A user of the broker that is this sensor; again, it gets another password."""
        async with self._pool.transaction() as connection:
            held, account = await require_owned_sensor(
                connection, caller, sensor, self._clock(), AppPermission.EDIT_SENSORS, lock=True
            )
            if held.state == "retired":
                raise RequestConflict(f"sensor {sensor} is retired")
            user, password = _user(held.serial), secrets.token_urlsafe(24)
            await self._broker.admit(held.serial, user, password)
            sensors = SensorRepository(connection)
            parts = urlsplit(self._address)
            tls = parts.scheme in ("mqtts", "wss")
            network = NetworkConfig(
                apn=held.network.apn if held.network else "",
                broker_host=parts.hostname or "localhost",
                port=parts.port or (8883 if tls else 1883),
                tls=tls,
                user_ref=user,
            )
            await sensors.connect_by(sensor, network)
            await sensors.change(sensor, {"provisioned_at": self._clock()})
            await AuditRepository(connection).record(caller, "provision", "sensor", sensor, account)
        topics = tuple(SensorTopic(held.serial, kind).topic for kind in SensorMessageKind)
        return SensorAccess(
            held.serial, self._address, user, password, topics, command_topic(held.serial)
        )

    async def connect_by(self, caller: Caller, sensor: int, network: NetworkConfig) -> Sensor:
        async with self._pool.transaction() as connection:
            held, account = await require_owned_sensor(
                connection, caller, sensor, self._clock(), AppPermission.EDIT_SENSORS, lock=True
            )
            sensors = SensorRepository(connection)
            await sensors.connect_by(sensor, network)
            await AuditRepository(connection).record(caller, "network", "sensor", held.id, account)
            return _there(await sensors.get(sensor, self._clock()), sensor)[0]

    async def fit_modem(self, caller: Caller, sensor: int, modem: SensorModem) -> Sensor:
        async with self._pool.transaction() as connection:
            held, account = await require_owned_sensor(
                connection, caller, sensor, self._clock(), AppPermission.EDIT_SENSORS, lock=True
            )
            sensors = SensorRepository(connection)
            await sensors.fit_modem(sensor, modem)
            await AuditRepository(connection).record(caller, "modem", "sensor", held.id, account)
            return _there(await sensors.get(sensor, self._clock()), sensor)[0]

    async def reports(
        self, caller: Caller, sensor: int, begin: datetime, end: datetime, limit: int
    ) -> list[SensorReport]:
        async with self._pool.reading() as connection:
            held, _ = await require_owned_sensor(
                connection, caller, sensor, self._clock(), AppPermission.READ_SENSORS
            )
        return await self._reports.of(held.serial, begin, end, limit)


def _user(serial: str) -> str:
    return f"sensor-{serial}"


async def require_owned_sensor(
    connection: Connection,
    caller: Caller,
    sensor: int,
    now: datetime,
    permission: AppPermission,
    *,
    lock: bool = False,
) -> tuple[Sensor, int]:
    """A sensor and its account, in which the caller has the permission; others' are not there."""
    found = await SensorRepository(connection).get(sensor, now, lock=lock)
    if found is None or not caller.may(AppPermission.READ_SENSORS, found[1]):
        raise NotFound(f"there is no sensor {sensor} of yours")
    caller.require(permission, found[1])
    return found


def _there(found: tuple[Sensor, int] | None, sensor: int) -> tuple[Sensor, int]:
    if found is None:
        raise NotFound(f"there is no sensor {sensor}")
    return found


# What sensors are told, and whether they have heard.
#
# A configuration is kept here first, then retained at the broker under the sensor's command topic;
# a status of the sensor that names its number acknowledges it (a trigger of the database sees to
# that, whoever writes the status). What the broker could not be given is given again by `tend`,
# which also sees to schedules.

#: Before they are told anything devices behave so.
_DEFAULTS: Final = SensorConfiguration()
#: Only one process at a time tends.
_TENDING: Final = 0x68697665


class SensorCommandService:
    def __init__(
        self, pool: DatabasePool, broker: SensorBroker, clock: Callable[[], datetime]
    ) -> None:
        self._pool = pool
        self._broker = broker
        self._clock = clock

    async def configure(
        self, caller: Caller, sensor: int, wanted: Mapping[str, int]
    ) -> SensorCommand:
        """Kept, then told; the sensor acknowledges when it has heard of it."""
        async with self._pool.transaction() as connection:
            held, account = await require_owned_sensor(
                connection, caller, sensor, self._clock(), AppPermission.EDIT_SENSORS, lock=True
            )
            sensors = SensorRepository(connection)
            config = await sensors.configure(sensor, _completed(held, wanted))
            await AuditRepository(connection).record(
                caller, "configure", "sensor", sensor, account, dict(wanted)
            )
        await self._pool.afterwards(lambda: self._deliver(held, config))
        return (await self.of(caller, sensor, 1))[0]

    async def of(self, caller: Caller, sensor: int, limit: int) -> list[SensorCommand]:
        """What it was told, the newest first, and whether it has heard."""
        async with self._pool.reading() as connection:
            await require_owned_sensor(
                connection, caller, sensor, self._clock(), AppPermission.READ_SENSORS
            )
            return await SensorRepository(connection).commands(sensor, limit)

    async def schedules(self, caller: Caller, sensor: int) -> list[ReportSchedule]:
        async with self._pool.reading() as connection:
            await require_owned_sensor(
                connection, caller, sensor, self._clock(), AppPermission.READ_SENSORS
            )
            return await SensorRepository(connection).schedules(sensor)

    async def schedule(
        self, caller: Caller, sensor: int, wanted: Sequence[Mapping[str, Any]]
    ) -> list[ReportSchedule]:
        """All of them at once; when their time has come, the sensor is configured so."""
        async with self._pool.transaction() as connection:
            _, account = await require_owned_sensor(
                connection, caller, sensor, self._clock(), AppPermission.EDIT_SENSORS, lock=True
            )
            sensors = SensorRepository(connection)
            await sensors.set_schedules(sensor, wanted)
            await AuditRepository(connection).record(caller, "schedule", "sensor", sensor, account)
            return await sensors.schedules(sensor)

    async def tend(self) -> int:
        """Schedules whose time has come, and commands the broker does not have. How many were
        delivered; none if another process is at it."""
        delivered = 0
        async with self._pool.reading() as connection:
            row = await (
                await connection.execute("SELECT pg_try_advisory_lock(%s) AS mine", (_TENDING,))
            ).fetchone()
            if row is None or not row["mine"]:
                return 0
            try:
                sensors = SensorRepository(connection)
                for sensor, interval in await sensors.scheduled(self._clock()):
                    held = await _known(sensors, sensor, self._clock())
                    async with connection.transaction():
                        wanted = _completed(held, {"report_interval_min": interval})
                        await sensors.configure(sensor, wanted)
                for sensor in await self._waiting(connection):
                    held = await _known(sensors, sensor, self._clock())
                    if held.config is not None and await self._deliver(held, held.config):
                        delivered += 1
            finally:
                await connection.execute("SELECT pg_advisory_unlock(%s)", (_TENDING,))
        return delivered

    async def _waiting(self, connection: Connection) -> list[int]:
        statement = """
            SELECT DISTINCT k.sensor_id FROM sensor_command k
            JOIN sensor s ON s.id = k.sensor_id AND s.report_config_id = k.report_config_id
            WHERE k.sent_at IS NULL AND s.state = 'active' ORDER BY 1 LIMIT 100
        """
        return [row["sensor_id"] async for row in await connection.execute(statement)]

    async def _deliver(self, sensor: Sensor, config: ReportConfig) -> bool:
        """To the broker, which keeps it for the sensor. If it is away, another time."""
        body = _wired(config).encode(FirmwareProfile.from_json(sensor.profile))
        try:
            await self._broker.retain(command_topic(sensor.serial), body)
        except (BrokerUnreachable, NotConfigured) as error:
            log.warning("configuration waits", sensor=sensor.serial, reason=str(error))
            return False
        async with self._pool.reading() as connection:
            await SensorRepository(connection).sent(config.configuration_id, self._clock())
        return True


def _wired(config: ReportConfig) -> SensorConfiguration:
    return SensorConfiguration(
        config.configuration_id,
        config.threshold_cm,
        config.report_interval_min,
        config.status_interval_min,
        config.event_threshold,
    )


def _completed(sensor: Sensor, wanted: Mapping[str, int]) -> dict[str, int]:
    """What is not said stays as it was told last, or as devices come."""
    held = sensor.config or ReportConfig(
        0,
        _DEFAULTS.threshold_cm,
        _DEFAULTS.report_interval_min,
        _DEFAULTS.status_interval_min,
        _DEFAULTS.event_threshold,
    )
    names = ("threshold_cm", "report_interval_min", "status_interval_min", "event_threshold")
    return {name: wanted.get(name, getattr(held, name)) for name in names}


async def _known(sensors: SensorRepository, sensor: int, now: datetime) -> Sensor:
    found = await sensors.get(sensor, now)
    assert found is not None, "sensors are retired, never deleted"
    return found[0]


# Reports of single sensors, from the pipeline's lake: what PostgreSQL has only the sums of.

_FLOW: Final = "hives"
_TABLE: Final = "silver.reports"
_COLUMNS: Final = (
    *("at", "received_at", "kind", "total_in", "total_out", "delta_in", "delta_out", "quality"),
)


class SensorReportReader:
    """Read by a thread, one request at a time: a day of a fleet is a few megabytes."""

    def __init__(self, lake: Path | None) -> None:
        self._lake = lake
        self._turn = asyncio.Lock()

    async def of(
        self, serial: str, begin: datetime, end: datetime, limit: int
    ) -> list[SensorReport]:
        """The newest first."""
        if self._lake is None:
            raise NotConfigured("no lake is configured (PENSTOCK_HIVES_LAKE)")
        async with self._turn:
            return await asyncio.to_thread(_read, self._lake, serial, begin, end, limit)


def _read(
    root: Path, serial: str, begin: datetime, end: datetime, limit: int
) -> list[SensorReport]:
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    # With the lake comes Spark's connector: for who asks for reports, and for nobody else.
    from penstock_spark.lake import Lake
    from penstock_spark.lake.log import files_in_days

    table = Lake.open(root, _FLOW).table(_TABLE)
    days = begin.astimezone(UTC).date(), end.astimezone(UTC).date()
    found: list[dict[str, Any]] = []
    for file in reversed(files_in_days(table.log.files(), days)):
        rows = pq.read_table(
            table.folder / file.path,
            columns=list(_COLUMNS),
            filters=(pc.field("sensor") == serial)
            & (pc.field("received_at") >= begin)
            & (pc.field("received_at") < end),
            partitioning=None,
        )
        found += rows.to_pylist()
        if len(found) >= limit * 2:  # batches overlap a little in time
            break
    found.sort(key=lambda row: row["received_at"], reverse=True)
    return [SensorReport(**row) for row in found[:limit]]
