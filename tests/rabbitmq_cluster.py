"""A RabbitMQ cluster of three nodes behind a load balancer, whose nodes are killed in turn.

The nodes share an epmd and a cookie of their own. Classic queues are mirrored by a policy; quorum
queues and streams are replicated anyway. One address leads to the nodes that run, as with HAProxy.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import threading
import time
from pathlib import Path
from typing import Final, Self

from tests.peers import Process, RabbitMQ, find_program, free_port

NODES: Final = 3
JOIN_SECONDS: Final = 120.0
_MIRRORS: Final = '{"ha-mode":"all","ha-sync-mode":"automatic"}'


class RabbitMQCluster:
    name = "rabbitmq-cluster"

    def __init__(self, folder: Path, plugins: tuple[str, ...] = ()) -> None:
        self._folder = folder
        self._control = find_program("rabbitmqctl", "rabbitmq-server", "/usr/lib/rabbitmq/bin")
        if self._control == "/usr/sbin/rabbitmqctl":  # Debian's wrapper runs it as another user
            self._control = "/usr/lib/rabbitmq/bin/rabbitmqctl"
        epmd = free_port()
        self._nodes = [
            ClusterNode(folder / f"node{number}", plugins, epmd) for number in range(NODES)
        ]
        self._epmd: Process | None = None
        self._epmd_port = epmd
        self._next = 0
        self._down: ClusterNode | None = None
        self.balancer = LoadBalancer([node.port for node in self._nodes])
        self.port = self.balancer.port
        self.management = LoadBalancer([node.management_port for node in self._nodes])

    @property
    def pid(self) -> int:
        """Of the node that is killed next."""
        return self._nodes[self._next % NODES].pid

    @property
    def url(self) -> str:
        return f"amqp://guest:guest@127.0.0.1:{self.port}/%2F"

    @property
    def urls(self) -> str:
        """All nodes in one URL, as our client takes it."""
        hosts = ",".join(f"127.0.0.1:{node.port}" for node in self._nodes)
        return f"amqp://guest:guest@{hosts}/%2F"

    def __enter__(self) -> Self:
        self._folder.mkdir(parents=True, exist_ok=True)
        program = find_program("epmd", "erlang-base")
        self._epmd = Process(
            [program, "-port", str(self._epmd_port), "-address", "127.0.0.1"],
            self._folder / "epmd.log",
            {"PATH": os.environ["PATH"]},
        )
        self._epmd.wait_for_port(self._epmd_port)
        names = [node.node for node in self._nodes]
        try:
            self._nodes[0].run(names)
            self._nodes[0].ready()
            for node in self._nodes[1:]:
                node.run(names)
            for node in self._nodes[1:]:
                node.ready()
            self._wait_for_members()
            self._call("set_policy", "mirrors", ".*", _MIRRORS, "--apply-to", "queues")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.balancer.close()
        self.management.close()
        for node in self._nodes:
            node.end()
        if self._epmd is not None:
            self._epmd.end(signal.SIGKILL)

    def kill(self) -> None:
        """Kill the next node in turn."""
        self._down = self._nodes[self._next % NODES]
        self._next += 1
        self._down.end()

    stop = kill

    def start(self) -> None:
        """Start the node that was killed, and wait until it is a member again."""
        assert self._down is not None, "no node was killed"
        node, self._down = self._down, None
        node.run([one.node for one in self._nodes])
        node.ready()
        self._wait_for_members()

    def _wait_for_members(self) -> None:
        deadline = time.monotonic() + JOIN_SECONDS
        while True:
            found = self._call("-q", "eval", "length(rabbit_nodes:all_running()).", check=False)
            if found.strip() == str(NODES):
                return
            assert time.monotonic() < deadline, f"{found} members"
            time.sleep(0.2)

    def _call(self, *words: str, check: bool = True) -> str:
        node = next(one for one in self._nodes if one is not self._down)
        done = subprocess.run(
            [self._control, "-n", node.node, *words],
            env=node.environment,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert not check or done.returncode == 0, done.stdout + done.stderr
        return done.stdout


class ClusterNode:
    """One node; it remembers its cluster."""

    def __init__(self, folder: Path, plugins: tuple[str, ...], epmd: int) -> None:
        self._server = RabbitMQ(folder, plugins)
        self._server._epmd_port = epmd
        self.port = self._server.port
        self.management_port = self._server.management_port
        self.node = f"test{self.port}@localhost"
        self.environment: dict[str, str] = {}
        self._process: Process | None = None

    def run(self, nodes: list[str]) -> None:
        folder = self._server.folder
        folder.mkdir(parents=True, exist_ok=True)
        self.environment = self._server._write_configuration()
        cookie = folder / ".erlang.cookie"
        if not cookie.exists():
            cookie.write_text("PENSTOCKTESTS")
            cookie.chmod(0o400)
        with (folder / "rabbitmq.conf").open("a") as configuration:
            configuration.write("cluster_formation.peer_discovery_backend = classic_config\n")
            for number, node in enumerate(nodes, 1):
                configuration.write(f"cluster_formation.classic_config.nodes.{number} = {node}\n")
        self._process = Process([self._server._server], folder / "rabbitmq.log", self.environment)

    @property
    def pid(self) -> int:
        assert self._process is not None, "not started"
        return self._process.pid

    def ready(self) -> None:
        assert self._process is not None
        self._process.wait_for_port(self.port)

    def end(self) -> None:
        if self._process is not None:
            self._process.end(signal.SIGKILL)


class LoadBalancer:
    """A port that leads to the next of several that accepts."""

    def __init__(self, targets: list[int]) -> None:
        self._targets = targets
        self._turn = 0
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listening.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client:
            server = self._connect()
            if server is None:
                return
            with server:
                back = threading.Thread(target=_copy, args=(server, client), daemon=True)
                back.start()
                _copy(client, server)
                back.join()

    def _connect(self) -> socket.socket | None:
        self._turn += 1
        for number in range(len(self._targets)):
            port = self._targets[(self._turn + number) % len(self._targets)]
            with contextlib.suppress(OSError):
                server = socket.create_connection(("127.0.0.1", port), 5)
                server.settimeout(None)
                return server
        return None


def _copy(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    for one in (source, target):
        with contextlib.suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)
