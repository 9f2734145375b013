"""Commands on another machine over SSH: `ssh://user@host:22`.

Nothing has to be installed there. A few lines of `sh` start the command in a session of its own and
listen to the connection: when that ends, because the work is to end or because we are gone, they
end the command with everything it has started, and remove its folder. What left the command's group
is found by descent and by a mark in its environment (`/proc`, on Linux): only a process that drops
its environment and outlives its parents is not.
"""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import asyncssh

from penstock.core.errors import ConfigurationError
from penstock_jobs.errors import CommandError
from penstock_jobs.shells.shell import (
    GRACE_SECONDS,
    CommandOutcome,
    OutputTail,
    TimeLimits,
    read_lines,
    wait_within_limits,
)

#: Grace, folder, and the command's words. Standard input says by its end that it is over.
_SCRIPT: Final = r"""
exec 3<&0
grace=$1 folder=$2; shift 2
cd "$folder" || exit 125
_PENSTOCK_JOB=$folder setsid "$@" </dev/null 3<&- & command=$!
processes() {
  marked=$(
    { cat "$folder/.processes"; grep -lsF "_PENSTOCK_JOB=$folder" /proc/[0-9]*/environ; } |
    tr -cs 0-9 ' '
  )
  grep -Hs '^PPid:' /proc/[0-9]*/status | tr -cs '0-9\n' ' ' | awk -v "marked=$marked" '
    { parent[$1] = $2 }
    END {
      count = split(marked, pids, " ")
      for (i = 1; i <= count; i++) found[pids[i]] = 1
      do {
        more = 0
        for (pid in parent)
          if (!(pid in found) && parent[pid] in found) { found[pid] = 1; more = 1 }
      } while (more)
      for (pid in found) if (pid in parent) print pid
    }'
}
send() { kill -s "$1" -- -$command $(processes); }
finish() {
  tries=0
  while send KILL; [ -n "$(processes)" ] && [ $tries -lt 50 ]; do
    tries=$((tries + 1)); sleep 0.1
  done
}
(
  cat <&3
  trap '' TERM
  processes > "$folder/.processes"  # who loses its parent now is known by this
  send TERM
  sleep "$grace"
  finish
  rm -rf "$folder"
) >/dev/null 2>&1 & listener=$!
wait $command; status=$?
finish 2>/dev/null
kill -s TERM $listener 2>/dev/null
exit $status
"""
#: How much longer than it should take we wait for the other side to be done.
_PATIENCE_SECONDS: Final = 10.0


class SshShell:
    def __init__(
        self, url: str, *, keys: Sequence[Path] = (), known_hosts: Path | None = None
    ) -> None:
        """Without keys, those of the user and its agent; hosts are known by the user's file."""
        parts = urlsplit(url)
        if parts.scheme != "ssh" or not parts.hostname:
            raise ConfigurationError(f"{url!r} should be ssh://user@host:22")
        self._place = f"{parts.hostname}:{parts.port or 22}"
        self._options = {
            "host": parts.hostname,
            "port": parts.port or 22,
            **({"username": unquote(parts.username)} if parts.username else {}),
            **({"password": unquote(parts.password)} if parts.password else {}),
            **({"client_keys": [str(key) for key in keys]} if keys else {}),
            **({"known_hosts": str(known_hosts)} if known_hosts is not None else {}),
        }
        self._connection: asyncssh.SSHClientConnection | None = None
        self._opening = asyncio.Lock()

    async def _connected(self) -> asyncssh.SSHClientConnection:
        async with self._opening:
            if self._connection is None or self._connection.is_closed():
                try:
                    self._connection = await asyncssh.connect(**self._options)
                except asyncssh.HostKeyNotVerifiable as error:
                    raise CommandError(
                        f"{self._place}: its host key is not known; add it to known_hosts "
                        f"(ssh-keyscan) if it is the right one: {error.reason}"
                    ) from error
                except (OSError, asyncssh.Error) as error:
                    raise CommandError(f"{self._place}: no connection: {error}") from error
            return self._connection

    @asynccontextmanager
    async def folder(self) -> AsyncIterator[SshFolder]:
        connection = await self._connected()
        made = await connection.run("mktemp -d -t penstock-job-XXXXXXXX", check=False)
        path = str(made.stdout or "").strip()
        if made.exit_status or not path:
            reason = str(made.stderr or "").strip()
            raise CommandError(f"{self._place}: no folder for the work: {reason}")
        try:
            yield SshFolder(connection, path)
        finally:
            with suppress(OSError, asyncssh.Error):  # the listener there does it, else
                await connection.run(shlex.join(["rm", "-rf", path]), check=False)

    async def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            await self._connection.wait_closed()


class SshFolder:
    def __init__(self, connection: asyncssh.SSHClientConnection, path: str) -> None:
        self._connection = connection
        self._path = path

    @property
    def path(self) -> str:
        return self._path

    async def write(self, name: str, content: bytes) -> str:
        target = f"{self._path}/{name}"
        try:
            async with self._connection.start_sftp_client() as files:
                await files.makedirs(target.rpartition("/")[0], exist_ok=True)
                async with files.open(target, "wb") as file:
                    await file.write(content)
        except asyncssh.SFTPError as error:
            raise CommandError(f"{name}: {error.reason}") from error
        return target

    async def read(self, name: str) -> bytes:
        try:
            async with (
                self._connection.start_sftp_client() as files,
                files.open(f"{self._path}/{name}", "rb") as file,
            ):
                content: Any = await file.read()
                return bytes(content)
        except asyncssh.SFTPError as error:
            raise CommandError(f"{name}: {error.reason}") from error

    async def run(
        self,
        command: Sequence[str],
        told: Callable[[str], None] = lambda _: None,
        limits: TimeLimits = TimeLimits(),  # noqa: B008 - frozen
    ) -> CommandOutcome:
        grace = limits.grace if limits.soft is not None or limits.hard is None else 0.0
        words = ["sh", "-c", _SCRIPT, "sh", f"{grace:g}", self._path, *command]
        try:
            process = await self._connection.create_process(shlex.join(words), encoding=None)
        except (OSError, asyncssh.Error) as error:
            raise CommandError(f"cannot run {command[0]!r}: {error}") from error
        output, errors = OutputTail(), OutputTail()
        pipes = asyncio.gather(
            read_lines(process.stdout.read, output, told), read_lines(process.stderr.read, errors)
        )

        async def end(grace: float) -> None:
            process.stdin.write_eof()
            try:
                await asyncio.wait_for(
                    process.wait_closed(), max(grace, GRACE_SECONDS) + _PATIENCE_SECONDS
                )
            except TimeoutError:
                process.close()

        try:
            reason = await wait_within_limits(limits, process.wait_closed, end)
        finally:
            with suppress(TimeoutError):
                await asyncio.wait_for(pipes, _PATIENCE_SECONDS)
        return _outcome(process, output, errors, reason)


def _outcome(
    process: asyncssh.SSHClientProcess[bytes], output: OutputTail, errors: OutputTail, reason: str
) -> CommandOutcome:
    status = process.returncode
    if status is None:
        raise CommandError("the connection broke before the command ended")
    if status > 128:  # as `sh` says that a signal ended it
        status = 128 - status
    return CommandOutcome(status, output.text, errors.text, reason)
