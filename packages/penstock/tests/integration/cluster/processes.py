"""A coordinator and the members of a cluster as processes, and the network between them."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import parse_qsl, urlsplit

from penstock.broker.permissions import Permission
from penstock.broker.users import Users
from tests.fixtures import needed
from tests.peers import Etcd, Process, free_port

from .namespaces import NamespaceLinks, Namespaces
from .network import ProxyLinks

LEASE_SECONDS: Final = 2.0
MEMBERS: Final = ("a", "b", "c")
#: An administrator; the password is the same.
USER: Final = "tester"
_MUTANTS: Final = Path(__file__).with_name("mutants.py")
_JUMPING_CLOCK: Final = Path(__file__).with_name("jumping_clock.py")
#: Of the disk of one member, where disks can be filled.
DISK_BYTES: Final = 64 << 20


class EtcdServer:
    """etcd, with an address for each way to it."""

    def __init__(self, folder: Path) -> None:
        self._etcd = needed(Etcd, folder)
        self._etcd.start()
        self.socket = self._etcd.port

    def url(self, address: str) -> str:
        return f"etcd://{address}/test"

    def jump_clock(self, seconds: int) -> None:
        """Its leases follow a clock that does not jump."""

    def stop(self) -> None:
        self._etcd.stop()


class PostgresqlServer:
    def __init__(self, folder: Path) -> None:
        from penstock_store import EmbeddedServer

        folder.mkdir(parents=True)
        self._server = EmbeddedServer(folder / "pg")
        self._address = urlsplit(self._server.start())
        options = dict(parse_qsl(self._address.query))
        self.socket = f"{options['host']}/.s.PGSQL.{options['port']}"

    def url(self, address: str) -> str:
        user, database = self._address.username, self._address.path
        return f"postgresql://{user}@{address}{database}?cluster=test&sslmode=disable"

    def jump_clock(self, seconds: int) -> None:
        """The time left of the lease changes, as it does when the server's clock jumps."""
        import psycopg

        with psycopg.connect(self._address.geturl(), autocommit=True) as connection:
            connection.execute(
                "UPDATE penstock_cluster SET expires = expires - make_interval(secs => %s)",
                (seconds,),
            )

    def stop(self) -> None:
        self._server.close()


def can_mount() -> bool:
    """Whether a member can have a small disk of its own."""
    if os.geteuid():
        return False
    with tempfile.TemporaryDirectory() as folder:
        if subprocess.run(
            ["mount", "-t", "tmpfs", "tmpfs", folder], capture_output=True
        ).returncode:
            return False
        return not subprocess.run(["umount", folder], capture_output=True).returncode


class MemberProcess:
    def __init__(
        self,
        folder: Path,
        name: str,
        coordinator: EtcdServer | PostgresqlServer,
        spaces: Namespaces | None = None,
        mutant: str = "",
        has_disk: bool = False,
        lease: float = LEASE_SECONDS,
    ) -> None:
        """With `has_disk`, its data has a small disk of its own."""
        self.folder = folder
        self.name = name
        self.amqp, self.http, self.mqtt = free_port(), free_port(), free_port()
        self.padres, replication = free_port(), free_port()
        self.links: ProxyLinks | NamespaceLinks
        if spaces is None:
            self.links = ProxyLinks(coordinator.socket, replication)
        else:
            self.links = NamespaceLinks(spaces, name, coordinator.socket, replication)
        self.host = self.links.host
        self._mutant = mutant
        self._starts = 0
        self._process: Process | None = None
        self._has_disk = has_disk
        folder.mkdir(parents=True, exist_ok=True)
        self._clock = folder / "clock"
        self._clock.write_text("0")
        disk = folder / "disk"
        disk.mkdir()
        self._ballast = disk / "ballast"
        self.data = disk / "data"
        if has_disk:
            options = ["-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(disk)]
            subprocess.run(["mount", *options], check=True)
        self._arguments = [
            *("broker", "--data", str(self.data)),
            *("--cluster", coordinator.url(self.links.coordinator)),
            *("--listen", f"amqp://{self.host}:{self.amqp}"),
            *("--listen", f"http://{self.host}:{self.http}"),
            *("--listen", f"mqtt://{self.host}:{self.mqtt}"),
            *("--listen", f"padres://{self.host}:{self.padres}"),
            *("--set", f"broker.cluster.listen=penstock://{self.host}:{replication}"),
            *("--set", f"broker.cluster.advertise=penstock://{self.links.advertised}"),
            *("--set", f"broker.cluster.node={name}"),
            *("--set", f"broker.cluster.lease={lease}"),
            *("--set", "broker.cluster.follower_timeout=2"),
            *("--set", "broker.cluster.confirm_policy=in-sync"),
        ]

    def start(self) -> None:
        self._starts += 1
        entry = (
            [str(_MUTANTS), self._mutant]
            if self._mutant
            else [str(_JUMPING_CLOCK), str(self._clock)]
        )
        self._process = Process(
            [*self.links.prefix, sys.executable, *entry, *self._arguments],
            self.folder / f"{self.name}-{self._starts}.log",
            dict(os.environ),
        )

    @property
    def log(self) -> str:
        return self._process.output() if self._process is not None else ""

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.running()

    def signal(self, how: signal.Signals) -> None:
        assert self._process is not None
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._process.pid, how)

    def kill(self) -> None:
        assert self._process is not None
        self._process.end(signal.SIGKILL)

    def stop(self) -> None:
        assert self._process is not None
        self._process.end(signal.SIGTERM)

    def jump_clock(self, seconds: int) -> None:
        """The system time of this member, from now on."""
        self._clock.write_text(str(seconds))

    def fill_disk(self) -> None:
        """To the last byte."""
        with self._ballast.open("wb", buffering=0) as file:
            for size in (1 << 20, 4096, 1):
                with contextlib.suppress(OSError):
                    while True:
                        file.write(bytes(size))

    def heal(self) -> None:
        self._ballast.unlink(missing_ok=True)
        self.links.heal()
        if self.is_running:
            self.signal(signal.SIGCONT)
        else:
            self.start()

    def close(self) -> None:
        if self._process is not None:
            self.signal(signal.SIGCONT)
            self._process.end(signal.SIGKILL)
        self.links.close()
        if self._has_disk:
            subprocess.run(["umount", "--lazy", str(self._ballast.parent)], check=False)

    def request(self, path: str, body: Any = None) -> Any:
        request = urllib.request.Request(
            f"http://{self.host}:{self.http}{path}",
            None if body is None else json.dumps(body).encode(),
            {"Authorization": f"Basic {b64encode(f'{USER}:{USER}'.encode()).decode()}"},
        )
        with urllib.request.urlopen(request, timeout=3) as answer:
            return json.loads(answer.read() or b"null")

    def status(self) -> dict[str, Any]:
        try:
            return dict(self.request("/api/cluster"))
        except (OSError, ValueError):
            return {}


def create_user(directories: list[Path]) -> None:
    """An administrator who may connect from anywhere, whichever member founds the cluster."""
    users: Users | None = None
    for data in directories:
        data.mkdir(parents=True, exist_ok=True)
        path = data / "users.json"
        if users is None:
            users = Users(path)
            users.load()
            users.add(USER, USER, ("administrator",))
            users.set_permissions(USER, "/", Permission(".*", ".*", ".*"))
        else:
            shutil.copy(users.path, path)


class ClusterProcesses:
    def __init__(
        self,
        folder: Path,
        mutant: str = "",
        coordinator: str = "etcd",
        disks: bool = False,
        namespaces: bool = False,
        lease: float = LEASE_SECONDS,
    ) -> None:
        server = PostgresqlServer if coordinator == "postgresql" else EtcdServer
        self._coordinator = server(folder / coordinator)
        self._spaces = Namespaces(MEMBERS) if namespaces else None
        self.members = [
            MemberProcess(
                folder / name, name, self._coordinator, self._spaces, mutant, disks, lease
            )
            for name in MEMBERS
        ]

    def __enter__(self) -> Self:
        try:
            create_user([member.data for member in self.members])
            for member in self.members:
                member.start()
            self.wait_in_sync()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for member in self.members:
            member.close()
        self._coordinator.stop()
        if self._spaces is not None:
            self._spaces.close()

    def jump_coordinator_clock(self, seconds: int) -> None:
        self._coordinator.jump_clock(seconds)

    def leader(self) -> MemberProcess | None:
        for member in self.members:
            if member.is_running and member.status().get("role") == "leader":
                return member
        return None

    def wait_in_sync(self, count: int = 3, seconds: float = 90.0) -> MemberProcess:
        """Until so many members are connected and in sync; returns the leader."""
        for _ in self._until(seconds):
            leader = self.leader()
            if leader is None:
                continue
            members = leader.status().get("members", ())
            if sum(one["in_sync"] and one["connected"] for one in members) >= count:
                return leader
        logs = "\n".join(f"{one.name}:\n{one.log[-1500:]}" for one in self.members)
        raise AssertionError(f"not {count} in sync:\n{logs}")

    def wait_for_other_leader(self, former: MemberProcess, seconds: float = 60.0) -> MemberProcess:
        for _ in self._until(seconds):
            for member in self.members:
                leads = member.is_running and member.status().get("role") == "leader"
                if leads and member is not former:
                    return member
        raise AssertionError("no other leader")

    def heal(self) -> None:
        for member in self.members:
            member.heal()

    @staticmethod
    def _until(seconds: float) -> Iterator[None]:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            yield
            time.sleep(0.1)
