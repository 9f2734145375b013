"""`/api/overview`, `/api/nodes`, `/api/whoami`."""

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
from penstock.core.resources import memory_used
from penstock.core.units import parse_count
from penstock.server.destination_types import EXCHANGE_TYPES
from penstock.server.management import metrics as rates
from penstock.server.management.api_call import AccessLevel, ApiCall, ApiRoute
from penstock.server.management.http import NO_CONTENT, HttpResponse, json_response
from penstock.server.management.list_query import item_response, list_response

if TYPE_CHECKING:
    from penstock.server.broker import Broker


#: The version of RabbitMQ's management API, which clients check.
RABBITMQ_VERSION: Final = "3.10.8"

#: RabbitMQ's names of protocols.
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


async def overview(call: ApiCall) -> HttpResponse:
    """The versions, listeners, alarms, totals and rates of the broker."""
    broker = call.broker
    metrics = broker.kernel.metrics
    metrics.refresh()
    seconds = parse_count(call.request.query.get("msg_rates_age", "")) or 0
    return item_response(
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
            "message_stats": call.rates.rates(rates.MESSAGE_STATS, seconds),
            "churn_rates": call.rates.rates(rates.CHURN, seconds),
            "traffic": call.rates.rates(rates.TRAFFIC, seconds),
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
    """The start of the process, in seconds since the epoch."""
    # The second field is the process name in parentheses, which may contain anything.
    ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    since_boot = float(Path("/proc/uptime").read_text().split()[0])
    return time.time() - since_boot + ticks / os.sysconf("SC_CLK_TCK")


async def nodes(call: ApiCall) -> HttpResponse:
    """List the nodes: this broker, with its memory, disk and limits."""
    return await list_response(call, [describe_node(call.broker)])


async def node(call: ApiCall) -> HttpResponse:
    """Describe a node: memory, disk, file descriptors and limits."""
    if call.name != node_name(call.broker):
        raise NotFound(f"no node '{call.name}'")
    return item_response(call, describe_node(call.broker))


async def whoami(call: ApiCall) -> HttpResponse:
    """The name and tags of the authenticated user."""
    return json_response({"name": call.user.name, "tags": list(call.user.tags)})


async def cluster_name(call: ApiCall) -> HttpResponse:
    """The name of the broker."""
    return json_response({"name": call.broker.settings.server_name})


async def reset(call: ApiCall) -> HttpResponse:
    """Delete the history of the message rates."""
    if "name" in call.names and call.name != node_name(call.broker):
        raise NotFound(f"no node '{call.name}'")
    call.rates.reset()
    return NO_CONTENT


async def empty_list(call: ApiCall) -> HttpResponse:
    """An empty list: RabbitMQ lists extensions of its management pages here."""
    return json_response([])


routes: Final = (
    ApiRoute("GET", "/api/overview", overview),
    ApiRoute("GET", "/api/nodes", nodes, AccessLevel.MONITORING),
    ApiRoute("GET", "/api/nodes/{name}", node, AccessLevel.MONITORING),
    ApiRoute("GET", "/api/whoami", whoami),
    ApiRoute("GET", "/api/cluster-name", cluster_name),
    ApiRoute("GET", "/api/extensions", empty_list),
    ApiRoute("DELETE", "/api/reset", reset, AccessLevel.ADMINISTRATOR),
    ApiRoute("DELETE", "/api/reset/{name}", reset, AccessLevel.ADMINISTRATOR),
)
