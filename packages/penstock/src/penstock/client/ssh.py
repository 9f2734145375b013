"""An SSH connection that is opened on first use, and again after it was lost."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import asyncssh

from penstock.core.errors import PenstockError


class SshConnection:
    def __init__(
        self,
        host: str,
        port: int = 22,
        *,
        user: str | None = None,
        password: str | None = None,
        keys: Sequence[Path] = (),
        known_hosts: Path | None = None,
        error: type[PenstockError] = PenstockError,
    ) -> None:
        """Without keys, those of the user and the agent; without `known_hosts`, the user's file.
        `error` is raised if the connection fails."""
        self.name = f"{host}:{port}"
        self._error = error
        self._options: dict[str, Any] = {
            "host": host,
            "port": port,
            **({"username": user} if user else {}),
            **({"password": password} if password else {}),
            **({"client_keys": [str(key) for key in keys]} if keys else {}),
            **({"known_hosts": str(known_hosts)} if known_hosts is not None else {}),
        }
        self._connection: asyncssh.SSHClientConnection | None = None
        self._lock = asyncio.Lock()

    async def get(self) -> asyncssh.SSHClientConnection:
        async with self._lock:
            if self._connection is None or self._connection.is_closed():
                try:
                    self._connection = await asyncssh.connect(**self._options)
                except asyncssh.HostKeyNotVerifiable as error:
                    raise self._error(
                        f"{self.name}: unknown host key; check it, then add it to known_hosts "
                        f"(ssh-keyscan): {error.reason}"
                    ) from error
                except (OSError, asyncssh.Error) as error:
                    raise self._error(f"{self.name}: no SSH connection: {error}") from error
            return self._connection

    async def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            await self._connection.wait_closed()
