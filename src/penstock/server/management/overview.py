"""`/api/overview`, `/api/nodes`, `/api/whoami`: the broker as a whole."""

from __future__ import annotations

import os
import platform
import resource
import socket
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import penstock
from penstock.core.addresses import parse_address
from penstock.core.errors import NotFound
from penstock.core.machine import memory_used
from penstock.core.units import parse_count
from penstock.server.management import rates
from penstock.server.management.call import Call, Level
from penstock.server.management.http import Response, as_json
from penstock.server.management.listing import listed, shown
from penstock.server.management.routing import Route
from penstock.server.types import EXCHANGE_TYPES

if TYPE_CHECKING:
    from penstock.server.broker import Broker

#: The version of RabbitMQ whose management API this is; clients look at it to know what to expect.
RABBITMQ_VERSION: Final = "3.10.8"

#: What RabbitMQ calls the protocols of our listeners.
PROTOCOLS: Final = {"amqps": "amqp/ssl", "mqtts": "mqtt/ssl", "ws": "http/web-mqtt"}


def node_name(broker: Broker) -> str:
    return f"{broker.settings.server_name}@{socket.gethostname()}"


def exchange_types() -> list[dict[str, Any]]:
    return [
        {"name": name, "description": f"{name} exchange", "enabled": True}
        for name in EXCHANGE_TYPES
    ]


def listeners(broker: Broker) -> list[dict[str, Any]]:
    found = []
    for address in map(parse_address, broker.addresses):
        found.append(
            {
                "node": node_name(broker),
                "protocol": PROTOCOLS.get(address.scheme, address.scheme),
                "ip_address": address.host,
                "port": address.port,
                "url": str(address),
                "socket_opts": {},
            }
        )
    return found


async def overview(call: Call) -> Response:
    broker = call.broker
    metrics = broker.kernel.metrics
    metrics.refresh()
    seconds = parse_count(call.request.query.get("msg_rates_age", "")) or 0
    return shown(
        call,
        {
            "management_version": RABBITMQ_VERSION,
            "rabbitmq_version": RABBITMQ_VERSION,
            "product_name": broker.product["product"],
            "product_version": penstock.__version__,
            "erlang_version": "",
            "python_version": platform.python_version(),
            "cluster_name": broker.settings.server_name,
            "node": node_name(broker),
            "rates_mode": "basic",
            "exchange_types": exchange_types(),
            "message_stats": call.rates.of(rates.MESSAGE_STATS, seconds),
            "churn_rates": call.rates.of(rates.CHURN, seconds),
            "traffic": call.rates.of(rates.TRAFFIC, seconds),
            "queue_totals": {
                "messages": metrics.ready + metrics.unacknowledged,
                "messages_ready": metrics.ready,
                "messages_unacknowledged": metrics.unacknowledged,
            },
            "object_totals": {
                "connections": metrics.connections,
                "channels": metrics.channels,
                "consumers": metrics.consumers,
                "exchanges": metrics.exchanges,
                "queues": metrics.queues,
            },
            "listeners": listeners(broker),
            "contexts": [
                {"node": entry["node"], "description": "Penstock management", "path": "/"}
                | {"ip": entry["ip_address"], "port": entry["port"]}
                for entry in listeners(broker)
                if entry["protocol"] in ("http", "https")
            ],
            "alarms": broker.alarms.names,
            "damage": len(broker.damage),
        },
    )


def describe_node(broker: Broker) -> dict[str, Any]:
    alarms = broker.alarms.names
    return {
        "name": node_name(broker),
        "type": "disc",
        "running": True,
        "being_drained": broker.draining,
        "os_pid": str(os.getpid()),
        "uptime": int((time.time() - started()) * 1000),
        "processors": os.cpu_count() or 1,
        "run_queue": 0,
        "rates_mode": "basic",
        "fd_used": sum(1 for _ in Path("/proc/self/fd").iterdir()),
        "fd_total": resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        "sockets_used": len(broker.clients),
        "mem_used": memory_used(),
        "mem_limit": broker.kernel.pool.budget,
        "mem_alarm": "memory" in alarms,
        "message_memory": broker.kernel.pool.used,
        "disk_free": broker.kernel.metrics.disk_free,
        "disk_free_limit": broker.settings.disk_free_limit,
        "disk_free_alarm": "disk" in alarms,
        "alarm_reason": broker.alarms.reason,
        "partitions": [],
        "exchange_types": exchange_types(),
        "auth_mechanisms": [
            {"name": name, "description": f"SASL {name}", "enabled": True}
            for name in ("PLAIN", "AMQPLAIN")
        ],
        "applications": [
            {
                "name": "penstock",
                "description": broker.product["information"],
                "version": penstock.__version__,
            }
        ],
        "contexts": [],
        "enabled_plugins": [],
        "config_files": [],
        "db_dir": str(broker.data),
        "log_files": [],
    }


def started() -> float:
    """When the process began, in seconds since the epoch."""
    # The process's name comes second, in parentheses, and may hold anything.
    ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    since_boot = float(Path("/proc/uptime").read_text().split()[0])
    return time.time() - since_boot + ticks / os.sysconf("SC_CLK_TCK")


async def nodes(call: Call) -> Response:
    return await listed(call, [describe_node(call.broker)])


async def node(call: Call) -> Response:
    if call.name != node_name(call.broker):
        raise NotFound(f"no node '{call.name}'")
    return shown(call, describe_node(call.broker))


async def whoami(call: Call) -> Response:
    return as_json({"name": call.user.name, "tags": list(call.user.tags)})


async def cluster_name(call: Call) -> Response:
    return as_json({"name": call.broker.settings.server_name})


async def extensions(call: Call) -> Response:
    return as_json([])


async def none_of_them(call: Call) -> Response:
    """What RabbitMQ has and Penstock has not: there are none, which is an answer too."""
    return as_json([])


routes: Final = (
    Route("GET", "/api/overview", Level.MANAGEMENT, overview),
    Route("GET", "/api/nodes", Level.MONITORING, nodes),
    Route("GET", "/api/nodes/{name}", Level.MONITORING, node),
    Route("GET", "/api/whoami", Level.MANAGEMENT, whoami),
    Route("GET", "/api/cluster-name", Level.MANAGEMENT, cluster_name),
    Route("GET", "/api/extensions", Level.MANAGEMENT, extensions),
    Route("GET", "/api/policies", Level.MANAGEMENT, none_of_them),
    Route("GET", "/api/policies/{vhost}", Level.MANAGEMENT, none_of_them),
    Route("GET", "/api/operator-policies", Level.MANAGEMENT, none_of_them),
    Route("GET", "/api/parameters", Level.MANAGEMENT, none_of_them),
    Route("GET", "/api/global-parameters", Level.MANAGEMENT, none_of_them),
    Route("GET", "/api/vhost-limits", Level.MANAGEMENT, none_of_them),
)
