"""Properties of MQTT 5 as plain values, by paho's names for them, and as paho wants them."""

from __future__ import annotations

from typing import Any, Final

from paho.mqtt.properties import Properties

#: A session that outlives the connection: its expiry in seconds.
AN_HOUR: Final = 3600


def properties_of(kind: int, values: dict[str, Any]) -> Properties | None:
    if not values:
        return None
    properties: Properties = Properties(kind)  # type: ignore[no-untyped-call]
    for name, value in values.items():
        setattr(properties, name, value)
    return properties


def values_of(properties: Properties | None) -> dict[str, Any]:
    if properties is None:
        return {}
    names = (name.replace(" ", "") for name in properties.names)
    return {name: getattr(properties, name) for name in names if hasattr(properties, name)}
