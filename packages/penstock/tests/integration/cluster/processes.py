"""etcd and the members of a cluster, as processes with proxies between them."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Self

from tests.fixtures import needed
from tests.peers import Etcd, Process, free_port

from .network import Proxy

LEASE_SECONDS: Final = 2.0
_MUTANTS: Final = Path(__file__).with_name("mutants.py")


class MemberProcess:
    def __init__(self, folder: Path, name: str, etcd: int, mutant: str = "") -> None:
        self.folder = folder
        self.name = name
        self.amqp, self.http, self.mqtt = free_port(), free_port(), free_port()
        replication = free_port()
        self.to_etcd = Proxy(etcd)
        self.from_followers = Proxy(replication)  #: while it leads
        self._mutant = mutant
        self._starts = 0
        self._process: Process | None = None
        self._arguments = [
            *("broker", "--data", str(folder / "data")),
            *("--cluster", f"etcd://127.0.0.1:{self.to_etcd.port}/test"),
            *("--listen", f"amqp://127.0.0.1:{self.amqp}"),
            *("--listen", f"http://127.0.0.1:{self.http}"),
            *("--listen", f"mqtt://127.0.0.1:{self.mqtt}"),
            *("--set", f"broker.cluster.listen=penstock://127.0.0.1:{replication}"),
            *("--set", f"broker.cluster.advertise=penstock://127.0.0.1:{self.from_followers.port}"),
            *("--set", f"broker.cluster.node={name}"),
            *("--set", f"broker.cluster.lease={LEASE_SECONDS}"),
            *("--set", "broker.cluster.follower_timeout=2"),
            *("--set", "broker.cluster.confirm_policy=in-sync"),
        ]

    def start(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self._starts += 1
        entry = [str(_MUTANTS), self._mutant] if self._mutant else ["-m", "penstock"]
        self._process = Process(
            [sys.executable, *entry, *self._arguments],
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

    def close(self) -> None:
        if self._process is not None:
            self.signal(signal.SIGCONT)
            self._process.end(signal.SIGKILL)
        self.to_etcd.close()
        self.from_followers.close()

    def request(self, path: str, body: Any = None) -> Any:
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.http}{path}",
            None if body is None else json.dumps(body).encode(),
            {"Authorization": "Basic Z3Vlc3Q6Z3Vlc3Q="},
        )
        with urllib.request.urlopen(request, timeout=3) as answer:
            return json.loads(answer.read() or b"null")

    def status(self) -> dict[str, Any]:
        try:
            return dict(self.request("/api/cluster"))
        except (OSError, ValueError):
            return {}


class ClusterProcesses:
    def __init__(self, folder: Path, mutant: str = "") -> None:
        self.etcd = needed(Etcd, folder / "etcd")
        self.etcd.start()
        self.members = [
            MemberProcess(folder / name, name, self.etcd.port, mutant) for name in ("a", "b", "c")
        ]

    def __enter__(self) -> Self:
        try:
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
        self.etcd.stop()

    @property
    def ports(self) -> list[int]:
        return [member.amqp for member in self.members]

    def leader(self) -> MemberProcess | None:
        for member in self.members:
            if member.is_running and member.status().get("role") == "leader":
                return member
        return None

    def wait_in_sync(self, count: int = 3, seconds: float = 90.0) -> MemberProcess:
        """Until so many members are in sync; returns the leader."""
        for _ in self._until(seconds):
            leader = self.leader()
            if leader is not None and len(leader.status().get("in_sync", ())) >= count:
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
            member.to_etcd.heal()
            member.from_followers.heal()
            if member.is_running:
                member.signal(signal.SIGCONT)
            else:
                member.start()

    @staticmethod
    def _until(seconds: float) -> Iterator[None]:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            yield
            time.sleep(0.1)
