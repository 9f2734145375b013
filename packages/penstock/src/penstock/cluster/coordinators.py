"""Opening the coordinator that the settings name."""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable
from typing import Final
from urllib.parse import urlsplit

from penstock.cluster.coordinator import Coordinator
from penstock.cluster.etcd import EtcdCoordinator
from penstock.cluster.postgresql import PostgresqlCoordinator
from penstock.core.config import ClusterSettings
from penstock.core.errors import ConfigurationError
from penstock.core.retry import RetryPolicy, retry_async

#: While a member that starts waits for the coordinator.
REACH: Final = RetryPolicy(first=0.5)


def open_coordinator(settings: ClusterSettings, node: str) -> Coordinator | None:
    match urlsplit(settings.url).scheme:
        case "":
            return None
        case "etcd":
            return EtcdCoordinator(settings.url, node, settings.lease)
        case "postgresql" | "postgres":
            return PostgresqlCoordinator(settings.url, node, settings.lease)
        case other:
            raise ConfigurationError(
                f"broker.cluster.url: unsupported scheme {other}; use etcd:// or postgresql://"
            )


async def reach(identify: Callable[[], Awaitable[None]], seconds: float) -> None:
    """Identify a member that starts, also if its coordinator starts later, within so long."""

    def is_unreachable(error: Exception) -> bool:
        return isinstance(error, OSError) and not isinstance(error, PermissionError)

    try:
        await retry_async(identify, dataclasses.replace(REACH, total=seconds), is_unreachable)
    except OSError as error:
        raise unusable(error) from error


def unusable(error: OSError) -> ConfigurationError:
    """Why a member cannot start with this coordinator, and what to do."""
    step = (
        "correct the user and the password in the URL, or give the user its rights"
        if isinstance(error, PermissionError)
        else "start it first, or correct the URL"
    )
    return ConfigurationError(f"broker.cluster.url: {error}; {step}")
