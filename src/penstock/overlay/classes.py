"""Classes of messages that are about brokers."""

from __future__ import annotations

from typing import Final

RESERVED: Final = frozenset(
    {
        *("BROKER_CONTROL", "BROKER_MONITOR", "BROKER_INFO", "BROKER_ORDER", "NETWORK_DISCOVERY"),
        *("GLOBAL_FD", "HEARTBEAT_MANAGER", "TRACEROUTE_MESSAGE", "MSG_SET_DELIVERY_CLASS"),
        *("DB_CONTROL",),
    }
)
