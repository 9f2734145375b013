"""Real servers for integration tests, each on free loopback ports in a directory of its own.

A peer is started by `start()`, asked to end by `stop()` (SIGTERM) and ended without a word by
`kill()` (SIGKILL); started again it keeps its ports and its data. What a peer leaves running it
ends itself, by process id. A server that is not installed raises `PeerMissing`: `conftest.py`
turns that into a skip, or into a failure under `CI=true`.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from itertools import cycle
from pathlib import Path
from typing import Final, Protocol
from urllib.request import urlopen

#: RabbitMQ takes five to eight seconds on an idle machine; a very busy one gets time to spare.
START_SECONDS: Final = 180.0
STOP_SECONDS: Final = 60.0
#: Below the ports the system gives to clients: one of theirs could be taken by a client while its
#: server restarts, even by one that is trying to reconnect to it and reaches itself.
SERVER_PORTS: Final = range(20_000, 32_000)
#: Of these, each worker of `pytest --workers` has a share to itself.
WORKERS: Final = 8


class PeerMissing(Exception):
    """The server is not installed here; says which package has it."""


class Broker(Protocol):
    """What the conformance tests need of a broker, whoever wrote it."""

    name: str
    port: int

    @property
    def url(self) -> str: ...

    @property
    def pid(self) -> int: ...

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def kill(self) -> None: ...


class MqttBroker(Protocol):
    """What the tests need of a broker that speaks MQTT, whoever wrote it."""

    name: str
    mqtt_port: int

    @property
    def mqtt_url(self) -> str: ...

    @property
    def pid(self) -> int: ...

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def kill(self) -> None: ...


@cache
def _shuffled_ports(worker: str) -> Iterator[int]:
    """Those of a worker: none comes again while its server may still be starting."""
    ours = SERVER_PORTS[int(worker) % WORKERS :: WORKERS]
    return cycle(random.SystemRandom().sample(ours, len(ours)))


def free_port() -> int:
    """A port for a server that nobody listens on, and that nobody else here is given."""
    ports = _shuffled_ports(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    while True:
        port = next(ports)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def resident_bytes(pid: int) -> int:
    """How much memory a process has in use."""
    return _memory(pid, "VmRSS:")


def peak_bytes(pid: int) -> int:
    """How much memory a process had in use when it had most."""
    return _memory(pid, "VmHWM:")


def cpu_seconds(pid: int) -> float:
    """How much processor time a process has used: other than time, it is nobody else's."""
    after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(after_name[11]) + int(after_name[12])) / os.sysconf("SC_CLK_TCK")


def _memory(pid: int, which: str) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(which):
            return int(line.split()[1]) * 1024
    raise AssertionError(f"process {pid} has gone")


def find_program(name: str, package: str, *folders: str) -> str:
    path = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", *folders])
    found = shutil.which(name, path=path)
    if found is None:
        raise PeerMissing(f"{name} is not installed (Debian package {package})")
    return found


def find_new_rabbitmq() -> str:
    """The start program of a RabbitMQ 4, which `scripts/peers-new` installs."""
    server = Path(__file__).parents[1] / ".peers" / "newer" / "rabbitmq-server"
    if not server.exists():
        raise PeerMissing("RabbitMQ 4 is not installed (scripts/peers-new)")
    return str(server)


class Process:
    """A child process whose output goes to a file, so that a failure can show it."""

    def __init__(self, arguments: list[str], log: Path, environment: dict[str, str]) -> None:
        with log.open("ab") as output:
            self._child = subprocess.Popen(
                arguments,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment,
                cwd=log.parent,  # where it may leave what it leaves when it crashes
                start_new_session=True,
            )
        self._log = log
        self.pid = self._child.pid

    def wait_for_port(self, port: int) -> None:
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            if self._child.poll() is not None:
                break
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
            except OSError:
                time.sleep(0.05)
            else:
                return
        self.end(signal.SIGKILL)
        raise AssertionError(f"nothing listens on port {port}:\n{self.output()[-4000:]}")

    def wait_for_line(self, beginning: str) -> str:
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline and self._child.poll() is None:
            for line in self.output().splitlines():
                if line.startswith(beginning):
                    return line
            time.sleep(0.02)
        self.end(signal.SIGKILL)
        raise AssertionError(f"no line {beginning!r}:\n{self.output()[-4000:]}")

    def output(self) -> str:
        return self._log.read_text(errors="replace")

    def running(self) -> bool:
        return self._child.poll() is None

    def end(self, how: signal.Signals) -> int:
        """Send the signal and wait; whoever ignores a polite one is killed. The exit status."""
        if self.running():
            self._child.send_signal(how)
        try:
            return self._child.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._child.kill()
            return self._child.wait()

    def end_group(self, how: signal.Signals) -> None:
        """End it together with the processes it started."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, how)
        self.end(how)


class Penstock:
    """`penstock broker` as a process; with `mqtt`, it listens for that and for WebSockets too."""

    name = "penstock"

    def __init__(
        self,
        folder: Path,
        *arguments: str,
        data: Path | None = None,
        environment: dict[str, str] | None = None,
        mqtt: bool = False,
        program: tuple[str, ...] = ("-m", "penstock"),
    ) -> None:
        self.folder = folder
        self.data = data or folder / "data"
        self._program = program
        self.port = free_port()
        self.http_port = free_port()
        self.mqtt_port = free_port()
        self.ws_port = free_port()
        self._mqtt = mqtt
        self.exit_status: int | None = None
        self._arguments = arguments
        self._environment = environment or {}
        self._process: Process | None = None
        self._starts = 0

    @property
    def url(self) -> str:
        return f"amqp://guest:guest@127.0.0.1:{self.port}/%2F"

    @property
    def http_url(self) -> str:
        return f"http://127.0.0.1:{self.http_port}"

    @property
    def mqtt_url(self) -> str:
        return f"mqtt://guest:guest@127.0.0.1:{self.mqtt_port}"

    @property
    def ws_url(self) -> str:
        return f"ws://guest:guest@127.0.0.1:{self.ws_port}/ws"

    @property
    def pid(self) -> int:
        assert self._process is not None, "not started"
        return self._process.pid

    @property
    def log(self) -> str:
        """What the present process has written."""
        assert self._process is not None, "not started"
        return self._process.output()

    def start(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self._starts += 1
        self._process = Process(
            [
                *(sys.executable, *self._program, "broker", "--data", str(self.data)),
                *("--listen", f"amqp://127.0.0.1:{self.port}"),
                *("--listen", f"http://127.0.0.1:{self.http_port}"),
                *self._mqtt_listeners(),
                *self._arguments,
            ],
            self.folder / f"penstock-{self._starts}.log",
            {**os.environ, **self._environment},
        )
        self._process.wait_for_line("penstock broker ready")

    def stop(self) -> None:
        if self._process is not None:
            self.exit_status = self._process.end(signal.SIGTERM)

    def kill(self) -> None:
        if self._process is not None:
            self.exit_status = self._process.end(signal.SIGKILL)

    def _mqtt_listeners(self) -> list[str]:
        if not self._mqtt:
            return []
        addresses = (f"mqtt://127.0.0.1:{self.mqtt_port}", f"ws://127.0.0.1:{self.ws_port}")
        return [word for address in addresses for word in ("--listen", address)]


class Etcd:
    """A single etcd, on the port `port`."""

    def __init__(self, folder: Path) -> None:
        self._program = find_program("etcd", "etcd-server")
        self.folder = folder
        self.port = free_port()

    def start(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        client, peer = f"http://127.0.0.1:{self.port}", f"http://127.0.0.1:{free_port()}"
        self._process = Process(
            [
                *(self._program, "--data-dir", str(self.folder / "data")),
                *("--listen-client-urls", client, "--advertise-client-urls", client),
                *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer),
                *("--initial-cluster", f"default={peer}"),
            ],
            self.folder / "etcd.log",
            {"PATH": os.environ["PATH"]},
        )
        self._process.wait_for_port(self.port)
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:  # it listens before it can answer
            with suppress(OSError), urlopen(f"{client}/health", timeout=5) as answer:
                if b"true" in answer.read():
                    return
            time.sleep(0.05)

    def stop(self) -> None:
        self._process.end(signal.SIGKILL)


class Mosquitto:
    """A mosquitto that lets anyone in and keeps its sessions in a directory of its own.

    It writes them when it is stopped, so a killed one forgets unless it is given
    `autosave_interval 1` and `autosave_on_changes true`: `settings` are lines for its
    configuration.
    """

    name = "mosquitto"

    def __init__(self, folder: Path, *settings: str, websocket: bool = False) -> None:
        self._server = find_program("mosquitto", "mosquitto")
        self.folder = folder
        self.port = self.mqtt_port = free_port()
        self.ws_port = free_port()
        self._settings = settings
        self._websocket = websocket
        self._process: Process | None = None

    @property
    def url(self) -> str:
        return f"mqtt://127.0.0.1:{self.port}"

    @property
    def mqtt_url(self) -> str:
        return self.url

    @property
    def ws_url(self) -> str:
        return f"ws://127.0.0.1:{self.ws_port}/ws"

    @property
    def pid(self) -> int:
        assert self._process is not None, "not started"
        return self._process.pid

    @property
    def log(self) -> str:
        assert self._process is not None, "not started"
        return self._process.output()

    def start(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        configuration = self._write_configuration()
        self._process = Process(
            [self._server, "-c", str(configuration)],
            self.folder / "mosquitto.log",
            {"PATH": os.environ["PATH"]},
        )
        self._process.wait_for_port(self.port)
        if self._websocket:
            self._process.wait_for_port(self.ws_port)

    def stop(self) -> None:
        if self._process is not None:
            self._process.end(signal.SIGTERM)

    def kill(self) -> None:
        if self._process is not None:
            self._process.end(signal.SIGKILL)

    def _write_configuration(self) -> Path:
        lines = [
            "allow_anonymous true",
            "persistence true",
            f"persistence_location {self.folder}/",
            # Started by root it would become another user, who may not write here.
            "user root",
            "log_dest stderr",
            *self._settings,
            f"listener {self.port} 127.0.0.1",
        ]
        if self._websocket:
            lines += [f"listener {self.ws_port} 127.0.0.1", "protocol websockets"]
        configuration = self.folder / "mosquitto.conf"
        configuration.write_text("\n".join(lines) + "\n")
        return configuration


class RabbitMQ:
    """A RabbitMQ node with a name, directories and an epmd of its own.

    With the plugin `rabbitmq_mqtt` it speaks MQTT 3.1.1 on a port of its own, and with
    `rabbitmq_web_mqtt` the same over WebSockets; with `rabbitmq_stream` it hands out chunks;
    `rabbitmq_management` is the management API.
    """

    name = "rabbitmq"

    def __init__(
        self, folder: Path, plugins: tuple[str, ...] = (), server: str | None = None
    ) -> None:
        self._server = server or find_program(
            "rabbitmq-server", "rabbitmq-server", "/usr/lib/rabbitmq/bin"
        )
        if self._server == "/usr/sbin/rabbitmq-server":
            # Debian's wrapper there runs it as another user; the script behind it does not.
            self._server = "/usr/lib/rabbitmq/bin/rabbitmq-server"
        self._epmd_program = find_program("epmd", "erlang-base")
        self.folder = folder
        self.port = free_port()
        self.mqtt_port = free_port()
        self.ws_port = free_port()
        self.stream_port = free_port()
        self.management_port = free_port()
        self._epmd_port = free_port()
        self._distribution_port = free_port()
        self._plugins = plugins
        self._process: Process | None = None
        self._epmd: Process | None = None

    @property
    def url(self) -> str:
        return f"amqp://guest:guest@127.0.0.1:{self.port}/%2F"

    @property
    def mqtt_url(self) -> str:
        return f"mqtt://guest:guest@127.0.0.1:{self.mqtt_port}"

    @property
    def ws_url(self) -> str:
        return f"ws://guest:guest@127.0.0.1:{self.ws_port}/ws"

    @property
    def pid(self) -> int:
        assert self._process is not None, "not started"
        return self._process.pid

    def start(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        environment = self._write_configuration()
        self._epmd = Process(
            [self._epmd_program, "-port", str(self._epmd_port), "-address", "127.0.0.1"],
            self.folder / "epmd.log",
            environment,
        )
        self._epmd.wait_for_port(self._epmd_port)
        self._process = Process([self._server], self.folder / "rabbitmq.log", environment)
        self._process.wait_for_port(self.port)
        if "rabbitmq_mqtt" in self._plugins:
            self._process.wait_for_port(self.mqtt_port)
        if "rabbitmq_web_mqtt" in self._plugins:
            self._process.wait_for_port(self.ws_port)
        if "rabbitmq_stream" in self._plugins:
            self._process.wait_for_port(self.stream_port)

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def _end(self, how: signal.Signals) -> None:
        for process in (self._process, self._epmd):
            if process is not None:
                process.end(how)

    def _plugin_settings(self) -> str:
        """Where the plugins listen; a node refuses the settings of plugins it does not have."""
        settings = ""
        if "rabbitmq_mqtt" in self._plugins:
            settings += f"mqtt.listeners.tcp.1 = 127.0.0.1:{self.mqtt_port}\n"
        if "rabbitmq_web_mqtt" in self._plugins:
            settings += f"web_mqtt.tcp.ip = 127.0.0.1\nweb_mqtt.tcp.port = {self.ws_port}\n"
        if "rabbitmq_stream" in self._plugins:
            settings += f"stream.listeners.tcp.1 = 127.0.0.1:{self.stream_port}\n"
        if "rabbitmq_management" in self._plugins:
            settings += (
                f"management.tcp.ip = 127.0.0.1\nmanagement.tcp.port = {self.management_port}\n"
            )
        return settings

    def _write_configuration(self) -> dict[str, str]:
        configuration = self.folder / "rabbitmq.conf"
        configuration.write_text(
            f"listeners.tcp.1 = 127.0.0.1:{self.port}\n"
            "log.console = true\nlog.console.level = warning\nlog.file = false\n"
            # Statistics cost processor time that the tests could use.
            "collect_statistics_interval = 60000\n" + self._plugin_settings()
        )
        (self.folder / "enabled_plugins").write_text(f"[{','.join(self._plugins)}].\n")
        (self.folder / "environment").touch()
        return {
            "PATH": os.environ["PATH"],
            "LANG": "C.UTF-8",
            "HOME": str(self.folder),  # the Erlang cookie is kept there
            "ERL_EPMD_PORT": str(self._epmd_port),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": f"test{self.port}@localhost",
            "RABBITMQ_DIST_PORT": str(self._distribution_port),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
            "RABBITMQ_CONFIG_FILE": str(configuration),
            "RABBITMQ_CONF_ENV_FILE": str(self.folder / "environment"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self.folder / "enabled_plugins"),
            "RABBITMQ_MNESIA_BASE": str(self.folder / "mnesia"),
            "RABBITMQ_LOG_BASE": str(self.folder / "log"),
            # Without a shell in between, the process id is the node's own.
            "RUNNING_UNDER_SYSTEMD": "true",
        }
