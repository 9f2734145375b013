"""Tables of sensors, their state, and the configurations sent to them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from penstock_hives.database import Connection, insert_row, update_row
from penstock_hives.sensors.models import (
    CommandState,
    NetworkConfig,
    ReportConfig,
    ReportSchedule,
    Sensor,
    SensorCommand,
    SensorModem,
    SensorStatus,
)

#: A sensor is stale after twice its reporting interval; the default intervals are the manual's.
_SENSOR: Final = """
    SELECT s.id, s.hive_id, s.serial, s.name, s.protocol, s.profile, s.direction_swapped, s.state,
           s.provisioned_at, s.updated_at, h.account_id,
           greatest(t.received_at, u.received_at) AS last_seen_at,
           coalesce(t.sum_in, 0) AS total_in, coalesce(t.sum_out, 0) AS total_out,
           CASE WHEN s.state <> 'active' THEN 'off'
                WHEN greatest(t.received_at, u.received_at) IS NULL THEN 'never'
                WHEN greatest(t.received_at, u.received_at) < %(now)s - 2 * interval '1 minute'
                     * coalesce(CASE s.protocol WHEN 'event' THEN c.status_interval_min
                                ELSE c.report_interval_min END,
                                CASE s.protocol WHEN 'event' THEN 360 ELSE 30 END) THEN 'stale'
                ELSE 'good' END AS health,
           c.configuration_id AS current_id, c.threshold_cm, c.report_interval_min,
           c.status_interval_min, c.event_threshold,
           n.id AS network_id, n.apn, n.broker_host, n.port, n.tls, n.user_ref,
           m.imei, m.iccid, m.operator, m.msisdn, m.model,
           u.received_at, u.started_at, u.battery_mv, u.sensor_state, u.discarded_events,
           u.signal_dbm, u.firmware, u.configuration_id
    FROM sensor s
    JOIN hive h ON h.id = s.hive_id
    LEFT JOIN sensor_state t ON t.sensor_id = s.id
    LEFT JOIN sensor_status u ON u.sensor_id = s.id
    LEFT JOIN sensor_report_config c ON c.id = s.report_config_id
    LEFT JOIN sensor_network_config n ON n.id = s.network_config_id
    LEFT JOIN modem m ON m.id = s.modem_id
"""
_COMMAND: Final = """
    SELECT k.configuration_id, k.created_at, k.sent_at, k.acked_at, c.threshold_cm,
           c.report_interval_min, c.status_interval_min, c.event_threshold
    FROM sensor_command k JOIN sensor_report_config c ON c.id = k.report_config_id
"""
_CONFIGURE: Final = """
    INSERT INTO sensor_report_config (configuration_id, threshold_cm, report_interval_min,
                                      status_interval_min, event_threshold)
    VALUES (%(configuration_id)s, %(threshold_cm)s, %(report_interval_min)s,
            %(status_interval_min)s, %(event_threshold)s)
    RETURNING id
"""
_COMMAND_INSERT: Final = """
    INSERT INTO sensor_command (sensor_id, configuration_id, report_config_id)
    VALUES (%(sensor)s, %(configuration)s, %(config)s)
"""
_CONFIG: Final = (
    *("threshold_cm", "report_interval_min", "status_interval_min", "event_threshold"),
)


class SensorRepository:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def get(
        self, sensor: int, now: datetime, *, lock: bool = False
    ) -> tuple[Sensor, int] | None:
        """With its account."""
        statement = f"{_SENSOR} WHERE s.id = %(id)s {'FOR UPDATE OF s' if lock else ''}"
        given = {"id": sensor, "now": now}
        row = await (await self._connection.execute(statement, given)).fetchone()
        return None if row is None else (_sensor(row), row["account_id"])

    async def of_hive(self, hive: int, now: datetime) -> list[Sensor]:
        statement = f"{_SENSOR} WHERE s.hive_id = %(hive)s ORDER BY s.id"
        found = await self._connection.execute(statement, {"hive": hive, "now": now})
        return [_sensor(row) async for row in found]

    async def of_account(self, account: int, now: datetime, after: int, limit: int) -> list[Sensor]:
        statement = f"""
            {_SENSOR} WHERE h.account_id = %(account)s AND s.id > %(after)s
            ORDER BY s.id LIMIT %(limit)s
        """
        given = {"account": account, "now": now, "after": after, "limit": limit}
        return [_sensor(row) async for row in await self._connection.execute(statement, given)]

    async def add(self, values: Mapping[str, Any]) -> int:
        return await insert_row(self._connection, "sensor", values)

    async def change(self, sensor: int, values: Mapping[str, Any]) -> None:
        await update_row(self._connection, "sensor", sensor, values)

    async def set_network(self, sensor: int, network: NetworkConfig) -> None:
        """Each sensor has a network configuration of its own."""
        values = {name: getattr(network, name) for name in NetworkConfig.__slots__}
        row = await (
            await self._connection.execute(
                "SELECT network_config_id AS current FROM sensor WHERE id = %s", (sensor,)
            )
        ).fetchone()
        assert row is not None
        if row["current"] is not None:
            await update_row(self._connection, "sensor_network_config", row["current"], values)
            return
        made = await insert_row(self._connection, "sensor_network_config", values)
        await self.change(sensor, {"network_config_id": made})

    async def set_modem(self, sensor: int, modem: SensorModem) -> None:
        statement = """
            INSERT INTO modem (imei, iccid, operator, msisdn, model)
            VALUES (%s, %s, %s, %s, %s)
            ON CONFLICT (imei) DO UPDATE SET iccid = excluded.iccid, operator = excluded.operator,
                msisdn = excluded.msisdn, model = excluded.model
            RETURNING id
        """
        given = (modem.imei, modem.iccid, modem.operator, modem.msisdn, modem.model)
        row = await (await self._connection.execute(statement, given)).fetchone()
        assert row is not None
        await self.change(sensor, {"modem_id": row["id"]})

    async def configure(self, sensor: int, wanted: Mapping[str, int]) -> ReportConfig:
        """Store a configuration with a new id, as a pending command."""
        row = await (
            await self._connection.execute("SELECT nextval('sensor_configuration') AS id")
        ).fetchone()
        assert row is not None
        config = ReportConfig(configuration_id=row["id"], **wanted)
        values = {name: getattr(config, name) for name in ReportConfig.__slots__}
        made = await (await self._connection.execute(_CONFIGURE, values)).fetchone()
        assert made is not None
        given = {"sensor": sensor, "configuration": row["id"], "config": made["id"]}
        await self._connection.execute(_COMMAND_INSERT, given)
        await self.change(sensor, {"report_config_id": made["id"]})
        return config

    async def mark_sent(self, configuration: int, now: datetime) -> None:
        statement = """
            UPDATE sensor_command SET sent_at = coalesce(sent_at, %s) WHERE configuration_id = %s
        """
        await self._connection.execute(statement, (now, configuration))

    async def pending(self) -> list[int]:
        """Sensors whose current configuration is not at the broker yet."""
        statement = """
            SELECT DISTINCT k.sensor_id FROM sensor_command k
            JOIN sensor s ON s.id = k.sensor_id AND s.report_config_id = k.report_config_id
            WHERE k.sent_at IS NULL AND s.state = 'active' ORDER BY 1 LIMIT 100
        """
        return [row["sensor_id"] async for row in await self._connection.execute(statement)]

    async def commands(self, sensor: int, limit: int) -> list[SensorCommand]:
        statement = f"{_COMMAND} WHERE k.sensor_id = %s ORDER BY k.id DESC LIMIT %s"
        found = await self._connection.execute(statement, (sensor, limit))
        return [_command(row) async for row in found]

    async def schedules(self, sensor: int) -> list[ReportSchedule]:
        statement = """
            SELECT id, weekdays, from_time, to_time, interval_min FROM sensor_report_schedule
            WHERE sensor_id = %s ORDER BY id
        """
        found = await self._connection.execute(statement, (sensor,))
        return [ReportSchedule(**row) async for row in found]

    async def set_schedules(self, sensor: int, wanted: Sequence[Mapping[str, Any]]) -> None:
        await self._connection.execute(
            "DELETE FROM sensor_report_schedule WHERE sensor_id = %s", (sensor,)
        )
        for each in wanted:
            values = {**each, "sensor_id": sensor}
            await insert_row(self._connection, "sensor_report_schedule", values)

    async def scheduled(self, now: datetime) -> list[tuple[int, int]]:
        """Sensors whose schedule demands another interval now, and that interval."""
        statement = """
            WITH local AS (
                SELECT s.id, s.report_config_id, now_local::time AS clock,
                       1 << (extract(isodow FROM now_local)::int - 1) AS today
                FROM sensor s JOIN hive h ON h.id = s.hive_id,
                LATERAL (SELECT %(now)s AT TIME ZONE h.time_zone AS now_local) AS l
                WHERE s.state = 'active'
                  AND EXISTS (SELECT FROM sensor_report_schedule x WHERE x.sensor_id = s.id)
            )
            SELECT l.id, coalesce((
                SELECT min(x.interval_min) FROM sensor_report_schedule x
                WHERE x.sensor_id = l.id AND x.weekdays & l.today <> 0
                  AND CASE WHEN x.from_time < x.to_time
                      THEN l.clock >= x.from_time AND l.clock < x.to_time
                      ELSE l.clock >= x.from_time OR l.clock < x.to_time END), 30) AS wanted,
                c.report_interval_min AS current
            FROM local l LEFT JOIN sensor_report_config c ON c.id = l.report_config_id
        """
        found = await self._connection.execute(statement, {"now": now})
        return [
            (row["id"], row["wanted"]) async for row in found if row["wanted"] != row["current"]
        ]


def _sensor(row: dict[str, Any]) -> Sensor:
    plain = ("id", "hive_id", "serial", "name", "protocol", "profile", "direction_swapped")
    more = ("state", "provisioned_at", "last_seen_at", "health", "total_in", "total_out")
    config = network = modem = status = None
    if row["current_id"] is not None:
        config = ReportConfig(row["current_id"], *(row[name] for name in _CONFIG))
    if row["network_id"] is not None:
        network = NetworkConfig(**{name: row[name] for name in NetworkConfig.__slots__})
    if row["imei"] is not None:
        modem = SensorModem(**{name: row[name] for name in SensorModem.__slots__})
    if row["received_at"] is not None:
        status = SensorStatus(**{name: row[name] for name in SensorStatus.__slots__})
    return Sensor(
        **{name: row[name] for name in (*plain, *more, "updated_at")},
        config=config,
        network=network,
        modem=modem,
        status=status,
    )


def _command(row: dict[str, Any]) -> SensorCommand:
    if row["acked_at"] is not None:
        state = CommandState.ACKNOWLEDGED
    else:
        state = CommandState.WAITING if row["sent_at"] is None else CommandState.SENT
    config = ReportConfig(row["configuration_id"], *(row[name] for name in _CONFIG))
    times = (row["created_at"], row["sent_at"], row["acked_at"])
    return SensorCommand(row["configuration_id"], state, config, *times)
