"""A machine over SSH. It needs `sh`, and Python for `install`."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import asyncssh

from penstock.cli.panda.machine import (
    ERROR_LOG,
    GRACE_SECONDS,
    OUTPUT_LOG,
    DeploymentError,
    MachineAccess,
)
from penstock.client.ssh import SshConnection

#: Folder, then the command's words.
_RUN: Final = 'mkdir -p "$1" && cd "$1" && shift && exec "$@"'
#: Folder, then the command's words. A session that outlives the connection; its first process waits
#: for the command, as only a parent can, and records its end. Variables are read from standard
#: input, up to an empty line, because all users can read command lines.
_START: Final = f"""
while IFS= read -r variable && [ "$variable" ]; do export "$variable"; done
mkdir -p "$1" && cd "$1" || exit 125
shift
rm -f ended
setsid sh -c '
  trap : TERM
  exec 3>&2 2>/dev/null
  "$@" 2>&3 3>&- & command=$!
  while kill -s 0 $command 2>/dev/null; do wait $command; done
  echo >ended
' sh "$@" </dev/null >>{OUTPUT_LOG} 2>>{ERROR_LOG} &
echo $! >process
"""
#: Folder and grace in tenths of a second. SIGTERM, then SIGKILL, to all processes of the session.
_STOP: Final = """
cd "$1" 2>/dev/null && process=$(cat process 2>/dev/null) || exit 0
kill -s TERM -- "-$process" 2>/dev/null
tenths=0
while [ ! -e ended ] && [ "$tenths" -lt "$2" ]; do
  sleep 0.1; tenths=$((tenths + 1))
done
kill -s KILL -- "-$process" 2>/dev/null
rm -f process
"""
_RUNNING: Final = 'cd "$1" && [ -e process ] && [ ! -e ended ]'


class SshMachine:
    def __init__(self, host: str, access: MachineAccess) -> None:
        self._host = host
        self._access = access
        self._ssh = SshConnection(
            host,
            access.port,
            user=access.login,
            keys=() if access.key is None else (access.key,),
            known_hosts=access.known_hosts,
            error=DeploymentError,
        )

    async def test(self) -> str:
        return (await self._run("uname -sr")).strip()

    async def run(self, name: str, words: Sequence[str], text: str) -> None:
        await self._script(_RUN, self._folder(name), *self._command(words), text=text)

    async def start(self, name: str, words: Sequence[str], environment: Mapping[str, str]) -> None:
        variables = "".join(f"{key}={value}\n" for key, value in environment.items())
        command = self._command(words)
        await self._script(_START, self._folder(name), *command, text=f"{variables}\n")

    def _command(self, words: Sequence[str]) -> Sequence[str]:
        return [*self._program, *words[1:]] if words[0] == "penstock" else words

    async def stop(self, name: str) -> None:
        await self._script(_STOP, self._folder(name), str(int(GRACE_SECONDS * 10)))

    async def running(self, name: str) -> bool:
        words = ["sh", "-c", _RUNNING, "sh", self._folder(name)]
        done = await (await self._ssh.get()).run(shlex.join(words), check=False)
        return done.exit_status == 0

    async def read(self, name: str, file: str) -> bytes:
        connection = await self._ssh.get()
        try:
            async with (
                connection.start_sftp_client() as files,
                files.open(f"{self._folder(name)}/{file}", "rb") as opened,
            ):
                content: Any = await opened.read()
                return bytes(content)
        except asyncssh.SFTPNoSuchFile:
            return b""
        except (OSError, asyncssh.Error) as error:
            raise DeploymentError(f"{self._host}: {name}/{file}: {error}") from None

    async def install(self, package: str) -> None:
        """A local file is uploaded first."""
        environment = f"{self._access.home}/environment"
        await self._run(shlex.join([self._access.python, "-m", "venv", environment]))
        path, bracket, extras = package.partition("[")
        if await asyncio.to_thread(Path(path).is_file):
            package = await self._upload(Path(path)) + bracket + extras
        words = [f"{environment}/bin/pip", "install", "-q", "--disable-pip-version-check", package]
        await self._run(shlex.join(words))

    async def _upload(self, file: Path) -> str:
        target = f"{self._access.home}/{file.name}"
        connection = await self._ssh.get()
        try:
            async with connection.start_sftp_client() as files:
                await files.put(str(file), target)
        except (OSError, asyncssh.Error) as error:
            raise DeploymentError(f"{self._host}: {file.name}: {error}") from None
        return target

    async def uninstall(self) -> None:
        await self._run(shlex.join(["rm", "-rf", f"{self._access.home}/environment"]))

    async def clean(self, everything: bool) -> None:
        if everything:
            await self._run(shlex.join(["rm", "-rf", self._access.home]))
        else:
            home = shlex.quote(self._access.home)
            await self._run(f"rm -f {home}/*/{OUTPUT_LOG} {home}/*/{ERROR_LOG}")

    async def close(self) -> None:
        await self._ssh.close()

    @property
    def _program(self) -> tuple[str, ...]:
        """Relative to the folder of a process, which is below the home."""
        home = self._access.home
        above = home if home.startswith("/") else ".."
        return self._access.program or (f"{above}/environment/bin/penstock",)

    def _folder(self, name: str) -> str:
        return f"{self._access.home}/{name}"

    async def _script(self, script: str, *words: str, text: str = "") -> None:
        await self._run(shlex.join(["sh", "-c", script, "sh", *words]), text)

    async def _run(self, command: str, text: str = "") -> str:
        connection = await self._ssh.get()
        try:
            done = await connection.run(command, check=False, input=text)
        except (OSError, asyncssh.Error) as error:
            raise DeploymentError(f"{self._host}: {error}") from None
        if done.exit_status:
            reason = str(done.stderr or "").strip() or f"exit status {done.exit_status}"
            raise DeploymentError(f"{self._host}: {reason}")
        return str(done.stdout or "")
