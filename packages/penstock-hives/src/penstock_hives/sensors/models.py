"""Sensors at the doors of hives: their properties, status, and configurations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, time
from enum import StrEnum
from typing import Any


class CommandState(StrEnum):
    WAITING = "waiting"  #: stored; the broker does not have it yet
    SENT = "sent"  #: retained at the broker until the sensor connects
    ACKNOWLEDGED = "acknowledged"  #: a status of the sensor has its id


@dataclass(frozen=True, slots=True)
class ReportConfig:
    configuration_id: int
    threshold_cm: int
    report_interval_min: int
    status_interval_min: int
    event_threshold: int


@dataclass(frozen=True, slots=True)
class NetworkConfig:
    apn: str
    broker_host: str
    port: int
    tls: bool
    user_ref: str | None


@dataclass(frozen=True, slots=True)
class SensorModem:
    imei: str
    iccid: str | None
    operator: str
    msisdn: str | None
    model: str


@dataclass(frozen=True, slots=True)
class SensorStatus:
    received_at: datetime
    started_at: datetime | None
    battery_mv: int | None
    sensor_state: int | None
    discarded_events: int | None
    signal_dbm: int | None
    firmware: str | None
    configuration_id: int | None


@dataclass(frozen=True, slots=True)
class Sensor:
    id: int
    hive_id: int
    serial: str
    name: str
    protocol: str
    profile: Mapping[str, Any]
    direction_swapped: bool
    state: str
    provisioned_at: datetime | None
    last_seen_at: datetime | None
    health: str
    total_in: int
    total_out: int
    config: ReportConfig | None
    network: NetworkConfig | None
    modem: SensorModem | None
    status: SensorStatus | None
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class SensorCommand:
    """A configuration sent to a sensor."""

    configuration_id: int
    state: str
    config: ReportConfig
    created_at: datetime
    sent_at: datetime | None
    acked_at: datetime | None


@dataclass(frozen=True, slots=True)
class ReportSchedule:
    """On these weekdays (Monday is 1, Sunday 64, added up), between two local times."""

    id: int
    weekdays: int
    from_time: time
    to_time: time
    interval_min: int


@dataclass(frozen=True, slots=True)
class SensorAccess:
    """A sensor's login at the broker; the password is returned once."""

    serial: str
    address: str
    user: str
    password: str
    topics: tuple[str, ...]
    command_topic: str


@dataclass(frozen=True, slots=True)
class SensorReport:
    """A report or an event, as the pipeline has decoded and counted it."""

    at: datetime
    received_at: datetime
    kind: str
    total_in: int | None
    total_out: int | None
    delta_in: int | None
    delta_out: int | None
    quality: int
