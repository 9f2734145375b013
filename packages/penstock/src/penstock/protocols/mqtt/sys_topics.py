"""`$SYS`: statistics of the broker as topics, under the names of mosquitto.

They are published to an exchange of their own, declared with the first subscription to `$SYS`, so
that subscribers of `#` do not receive them. The last values are retained.
"""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, Final, cast

import penstock
from penstock.broker.contract import RETAIN, Message, SessionQueue
from penstock.broker.declarations import SESSION_QUEUE_TYPE
from penstock.broker.host import Host
from penstock.core.basic_properties import encode_minimal_header, encode_route
from penstock.protocols.mqtt.sessions import SYS_EXCHANGE

if TYPE_CHECKING:
    from penstock.protocols.mqtt.sessions import MqttSessionRegistry

#: Periods of the moving averages.
LOAD_MINUTES: Final = (1, 5, 15)

#: The metric for each counter topic.
COUNTER_TOPICS: Final = {
    "messages/received": "published",
    "messages/sent": "delivered",
    "bytes/received": "bytes_in",
    "bytes/sent": "bytes_out",
    "publish/messages/received": "published",
    "publish/messages/sent": "delivered",
    "publish/messages/dropped": "dropped",
}
LOAD_TOPICS: Final = ("messages/received", "messages/sent", "bytes/received", "bytes/sent")


class SysTopics:
    def __init__(self, host: Host, sessions: dict[str, MqttSessionRegistry]) -> None:
        self._host = host
        self._sessions = sessions
        self._started = host.kernel.loop.time()
        self._timer: asyncio.TimerHandle | None = None
        self._max_clients = 0
        self._last: dict[str, int] = {}
        self._averages: dict[str, float] = {}

    def start(self) -> None:
        interval = self._host.kernel.settings.mqtt.sys_interval
        if interval:
            self._publish()
            kernel = self._host.kernel
            self._timer = kernel.write_batch.call_at(kernel.loop.time() + interval, self.start)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _publish(self) -> None:
        for name, sessions in list(self._sessions.items()):
            if self._host.vhosts.get(name) is not sessions.vhost:  # it was deleted
                del self._sessions[name]
        values = self._values()
        for sessions in self._sessions.values():
            vhost = sessions.vhost
            exchange = vhost.exchanges.get(SYS_EXCHANGE)
            for topic, value in values.items():
                body = value.encode()
                route = encode_route(SYS_EXCHANGE, "$SYS.broker." + topic.replace("/", "."))
                message = Message(route, encode_minimal_header(len(body), False), body, RETAIN)
                vhost.retained.retain(message, volatile=True)
                if exchange is not None:
                    exchange.accept(message)

    def _values(self) -> dict[str, str]:
        kernel = self._host.kernel
        connected = sum(len(sessions.clients) for sessions in self._sessions.values())
        total = sum(len(sessions) for sessions in self._sessions.values())
        self._max_clients = max(self._max_clients, connected)
        retained = sum(len(sessions.vhost.retained) for sessions in self._sessions.values())
        found = {
            "version": f"penstock {penstock.__version__}",
            "uptime": f"{int(kernel.loop.time() - self._started)} seconds",
            "clients/connected": str(connected),
            "clients/active": str(connected),
            "clients/disconnected": str(total - connected),
            "clients/inactive": str(total - connected),
            "clients/total": str(total),
            "clients/maximum": str(self._max_clients),
            "subscriptions/count": str(self._subscriptions()),
            "retained messages/count": str(retained),
        }
        for topic, metric in COUNTER_TOPICS.items():
            found[topic] = str(getattr(kernel.metrics, metric))
        for topic in LOAD_TOPICS:
            for minutes, value in self._load(topic, int(found[topic])):
                found[f"load/{topic}/{minutes}min"] = f"{value:.2f}"
        return found

    def _subscriptions(self) -> int:
        return sum(
            cast(SessionQueue, queue).subscription_count
            for sessions in self._sessions.values()
            for queue in sessions.vhost.queues.values()
            if queue.type == SESSION_QUEUE_TYPE
        )

    def _load(self, topic: str, count: int) -> list[tuple[int, float]]:
        """Rates per minute as exponential moving averages."""
        interval = self._host.kernel.settings.mqtt.sys_interval
        rate = (count - self._last.get(topic, count)) * 60 / interval
        self._last[topic] = count
        found = []
        for minutes in LOAD_MINUTES:
            key = f"{topic}/{minutes}"
            decay = math.exp(-interval / (60 * minutes))
            value = self._averages.get(key, 0.0) * decay + rate * (1 - decay)
            self._averages[key] = value
            found.append((minutes, value))
        return found
