"""An example of each shape the API speaks, for its description."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

_AT: Final = "2026-03-29T11:59:55.747000Z"
_OCCUPANCY: Final[Mapping[str, Any]] = {
    "hive_id": 6,
    "occupancy": 225,
    "percent": 72.6,
    "level": "busy",
    "trend": "rising",
    "quality": "good",
    "as_of": _AT,
    "version": 2,
    "usual": {"occupancy": 301.5, "weeks": 6, "relation": "quieter"},
}
_ADDRESS: Final[Mapping[str, Any]] = {
    "street": "Karl-Marx-Allee 1",
    "city": "Berlin",
    "zip": "10178",
    "country": "DE",
    "lat": 52.5219,
    "lon": 13.4132,
}
_HOURS: Final = {"mon": [["09:00", "17:30"]], "fri": [["18:00", "02:00"]]}
_DEAL: Final[Mapping[str, Any]] = {
    "id": 12,
    "hive_id": 6,
    "hive_name": "The Comb",
    "title": "Two for one",
    "description": "Any two coffees for the price of one.",
    "terms": "Until five o'clock.",
    "kind": "daily",
    "starts_at": "2026-03-29T06:00:00Z",
    "expires_at": "2026-03-29T15:00:00Z",
    "status": "published",
    "max_redemptions": 100,
    "redemptions": 17,
    "updated_at": _AT,
}

#: By the name of the schema.
EXAMPLES: Final[Mapping[str, Mapping[str, Any]]] = {
    "Occupancy": _OCCUPANCY,
    "HiveSummary": {
        "id": 6,
        "name": "The Comb",
        "type": "bar",
        "type_name": "Bar",
        "capacity": 310,
        "time_zone": "Europe/Berlin",
        "address": _ADDRESS,
        "open_now": True,
        "cover": "/v1/images/31",
        "occupancy": _OCCUPANCY,
        "distance_km": 1.204,
        "updated_at": _AT,
    },
    "Deal": _DEAL,
    "NewHive": {
        "name": "The Comb",
        "type": "bar",
        "time_zone": "Europe/Berlin",
        "capacity": 310,
        "opening_hours": _HOURS,
        "address": _ADDRESS,
    },
    "HiveEdit": {"capacity": 280, "description": "Now with a garden."},
    "HeadCount": {"counted": 42},
    "NewType": {"code": "bar", "name": "Bar"},
    "NewNetwork": {"kind": "wifi", "ssid": "comb-guests", "secret_ref": "vault:comb/wifi"},
    "NewDeal": {
        "title": "Two for one",
        "kind": "daily",
        "starts_at": "2026-03-29T06:00:00Z",
        "expires_at": "2026-03-29T15:00:00Z",
    },
    "DealEdit": {"terms": "Until six o'clock."},
    "Preference": {"kinds": ["daily"], "hive_types": ["bar"], "expiry_hours": [24, 2]},
    "Happening": {"action": "opened"},
    "ProfileEdit": {"nickname": "bumble", "time_zone": "Europe/Berlin", "age_band": "25_34"},
    "NewKey": {"name": "the till"},
    "Events": {
        "session_id": "7f9c2ba4",
        "events": [{"action": "search", "page_identifier": "/search", "query": "coffee"}],
    },
    "Appointment": {"role": "operator"},
    "NewAccount": {"name": "Ada's Places", "time_zone": "Europe/Berlin"},
    "AccountEdit": {"name": "Ada's Places Ltd"},
    "MemberRole": {"role": "account_member"},
    "Grant": {"plan": "business", "account_id": 3},
    "NewMessage": {"type": "feedback", "content": "Lovely, but loud.", "hive_id": 6},
    "Reply": {"content": "Thank you: we have moved the speakers."},
    "NewSetting": {
        "kind": "occupancy_below",
        "hive_id": 6,
        "threshold": 40,
        "unit": "percent",
        "hysteresis": 5,
        "quiet_from": "22:00",
        "quiet_to": "07:00",
    },
    "SettingEdit": {"threshold": 35},
    "NewSensor": {"serial": "a1-0007", "name": "Front door", "protocol": "v2"},
    "SensorEdit": {"name": "Back door", "direction_swapped": True},
    "ConfigurationBody": {"report_interval_min": 5, "event_threshold": 20},
    "Schedules": {
        "schedules": [{"weekdays": 96, "from_time": "10:00", "to_time": "20:00", "interval_min": 5}]
    },
    "NetworkBody": {"broker_host": "broker.example", "port": 8883, "tls": True, "apn": "iot"},
    "ModemBody": {"imei": "490154203237518", "operator": "Example", "model": "SIM7000"},
    "ImageEdit": {"kind": "cover", "caption": "The garden"},
    "NewMetric": {"name": "Visits a deal", "formula": "visits / deal_redemptions", "goal": 12},
    "MetricEdit": {"goal": 15},
    "Problem": {
        "type": "urn:penstock:problem:invalid-request",
        "title": "Invalid request",
        "status": 422,
        "detail": "the request is not as it should be",
        "errors": [{"field": "body.capacity", "reason": "Input should be greater than 0"}],
    },
}
