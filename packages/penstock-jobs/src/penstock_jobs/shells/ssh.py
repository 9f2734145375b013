"""Commands on another machine over SSH: `ssh://user@host:22`.

Nothing has to be installed there. A short `sh` script starts the command in a session of its own
and reads from the connection: a line asks the command to end. When the connection ends, because the
command is to be killed or the worker is gone, the script kills the command with everything it has
started and removes its folder. Processes that
left the command's group are found by descent and by a mark in their environment (`/proc`, on
Linux); only one that drops its environment and outlives its parents is missed.
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

from penstock.client.ssh import SshConnection
from penstock.core.errors import ConfigurationError
from penstock_jobs.errors import CommandError
from penstock_jobs.shells.shell import (
    GRACE_SECONDS,
    CommandOutcome,
    OutputTail,
    read_lines,
    wait_or_end,
)

#: Arguments: folder, the words of the command. A line of standard input asks the command to end,
#: its end kills it.
_SCRIPT: Final = r"""
exec 3<&0
folder=$1; shift
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
  read -r line <&3 && {
    trap '' TERM
    processes > "$folder/.processes"  # finds those that lose their parent now
    send TERM
    cat <&3
  }
  trap '' TERM
  finish
  rm -rf "$folder"
) >/dev/null 2>&1 & listener=$!
wait $command; status=$?
finish 2>/dev/null
kill -s TERM $listener 2>/dev/null
exit $status
"""
#: How long the other side may take to end a command and to send the rest of its output.
_EXTRA_SECONDS: Final = 10.0


class SshShell:
    def __init__(
        self,
        url: str,
        *,
        keys: Sequence[Path] = (),
        known_hosts: Path | None = None,
        grace: float | None = GRACE_SECONDS,
    ) -> None:
        """`grace` as in `LocalShell`."""
        parts = urlsplit(url)
        if parts.scheme != "ssh" or not parts.hostname:
            raise ConfigurationError(f"{url!r}: the form is ssh://user@host:22")
        self._grace = grace
        self._ssh = SshConnection(
            parts.hostname,
            parts.port or 22,
            user=unquote(parts.username or ""),
            password=unquote(parts.password or ""),
            keys=keys,
            known_hosts=known_hosts,
            error=CommandError,
        )

    @asynccontextmanager
    async def folder(self) -> AsyncIterator[SshFolder]:
        connection = await self._ssh.get()
        result = await connection.run("mktemp -d -t penstock-job-XXXXXXXX", check=False)
        path = str(result.stdout or "").strip()
        if result.exit_status or not path:
            reason = str(result.stderr or "").strip()
            raise CommandError(f"{self._ssh.name}: cannot create a folder: {reason}")
        try:
            yield SshFolder(connection, path, self._grace)
        finally:
            with suppress(OSError, asyncssh.Error):  # otherwise the script removes it
                await connection.run(shlex.join(["rm", "-rf", path]), check=False)

    async def close(self) -> None:
        await self._ssh.close()


class SshFolder:
    def __init__(
        self, connection: asyncssh.SSHClientConnection, path: str, grace: float | None
    ) -> None:
        self._connection = connection
        self._grace = grace
        self.path = path

    async def write(self, name: str, content: bytes) -> str:
        target = f"{self.path}/{name}"
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
                files.open(f"{self.path}/{name}", "rb") as file,
            ):
                content: Any = await file.read()
                return bytes(content)
        except asyncssh.SFTPError as error:
            raise CommandError(f"{name}: {error.reason}") from error

    async def run(
        self,
        command: Sequence[str],
        on_line: Callable[[str], None] = lambda _: None,
        on_error_line: Callable[[str], None] = lambda _: None,
    ) -> CommandOutcome:
        words = ["sh", "-c", _SCRIPT, "sh", self.path, *command]
        try:
            process = await self._connection.create_process(shlex.join(words), encoding=None)
        except (OSError, asyncssh.Error) as error:
            raise CommandError(f"cannot run {command[0]!r}: {error}") from error
        output, errors = OutputTail(), OutputTail()
        pipes = asyncio.gather(
            read_lines(process.stdout.read, output, on_line),
            read_lines(process.stderr.read, errors, on_error_line),
        )

        def ask() -> None:
            with suppress(OSError):  # it has ended
                process.stdin.write(b"\n")

        def kill() -> None:
            with suppress(OSError):
                process.stdin.write_eof()
            # The connection may be dead: then nothing more comes from there.
            asyncio.get_running_loop().call_later(_EXTRA_SECONDS, process.close)

        try:
            await wait_or_end(process.wait_closed, ask, kill, self._grace)
        finally:
            with suppress(TimeoutError):
                await asyncio.wait_for(pipes, _EXTRA_SECONDS)
        status = process.returncode
        if status is None:
            raise CommandError("the SSH connection was lost before the command ended")
        if status > 128:  # `sh` reports a signal this way
            status = 128 - status
        return CommandOutcome(status, output.text, errors.text)
