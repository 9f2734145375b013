"""A real sshd on loopback, with a host key and a user's key of its own."""

from __future__ import annotations

import getpass
import os
import signal
from pathlib import Path

import asyncssh

from tests.peers import Process, find_program, free_port


class Sshd:
    def __init__(self, folder: Path) -> None:
        self._program = find_program("sshd", "openssh-server")
        self._folder = folder
        self.port = free_port()
        self.user = getpass.getuser()
        self.key = folder / "user_key"
        self.known_hosts = folder / "known_hosts"
        self._process: Process | None = None

    @property
    def url(self) -> str:
        return f"ssh://{self.user}@127.0.0.1:{self.port}"

    def start(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        host = _key(self._folder / "host_key")
        user = _key(self.key)
        authorized = self._folder / "authorized_keys"
        authorized.write_bytes(user.export_public_key())
        self.known_hosts.write_text(f"[127.0.0.1]:{self.port} {host.export_public_key().decode()}")
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(exist_ok=True)  # it insists
        settings = {
            "Port": self.port,
            "ListenAddress": "127.0.0.1",
            "HostKey": self._folder / "host_key",
            "AuthorizedKeysFile": authorized,
            "PidFile": "none",
            "StrictModes": "no",
            "UsePAM": "no",
            "PermitRootLogin": "prohibit-password",
            "PasswordAuthentication": "no",
            "Subsystem": "sftp internal-sftp",
        }
        config = self._folder / "sshd_config"
        config.write_text("".join(f"{name} {value}\n" for name, value in settings.items()))
        self._process = Process(
            [self._program, "-D", "-e", "-f", str(config)], self._folder / "log", dict(os.environ)
        )
        self._process.wait_for_port(self.port)

    def stop(self) -> None:
        if self._process is not None:
            self._process.end(signal.SIGTERM)


def _key(path: Path) -> asyncssh.SSHKey:
    key = asyncssh.generate_private_key("ssh-ed25519")
    path.write_bytes(key.export_private_key())
    path.chmod(0o600)
    return key
