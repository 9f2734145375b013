"""mosquitto_pub, mosquitto_sub and mosquitto_rr: the command-line clients of mosquitto."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator

import pytest

from tests.fixtures import needed
from tests.peers import MqttBroker, find_program

PATIENCE = 60
VERSIONS = ["mqttv31", "mqttv311", "mqttv5"]

Run = Callable[..., str]
Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture(params=VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def command(mqtt_broker: MqttBroker) -> Callable[..., list[str]]:
    def make(program: str, *arguments: str) -> list[str]:
        path = needed(find_program, program, "mosquitto-clients")
        where = ["-h", "127.0.0.1", "-p", str(mqtt_broker.mqtt_port)]
        return [path, *where, "-u", "guest", "-P", "guest", *arguments]

    return make


@pytest.fixture
def run(command: Callable[..., list[str]]) -> Run:
    """Run a client to its end; what it printed."""

    def run_one(program: str, *arguments: str, stdin: str | None = None) -> str:
        done = subprocess.run(
            command(program, *arguments),
            input=stdin,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        if done.returncode:
            raise AssertionError((program, done.returncode, done.stdout, done.stderr))
        return done.stdout

    return run_one


@pytest.fixture
def subscribe(command: Callable[..., list[str]]) -> Iterator[Start]:
    """Start mosquitto_sub, and return when the broker has granted its subscription."""
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: str) -> subprocess.Popen[str]:
        child = subprocess.Popen(
            ["stdbuf", "-oL", *command("mosquitto_sub", "-d", *arguments)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        started.append(child)
        assert child.stdout is not None
        while "Subscribed" not in (line := child.stdout.readline()):
            assert line, "mosquitto_sub ended before it was subscribed"
        return child

    yield start
    for child in started:
        child.kill()
        child.communicate()


def messages(child: subprocess.Popen[str]) -> list[str]:
    """What it printed, without what it told about packets."""
    printed, _ = child.communicate(timeout=PATIENCE)
    return [line for line in printed.splitlines() if not line.startswith("Client ")]


@pytest.mark.parametrize("qos", ["0", "1", "2"])
def test_publish_and_subscribe(
    run: Run, subscribe: Start, name: str, version: str, qos: str
) -> None:
    reader = subscribe("-V", version, "-t", f"{name}/#", "-q", qos, "-C", "3", "-F", "%t %q %p")
    sent = "one\ntwo\nthree\n"
    run("mosquitto_pub", "-V", version, "-t", f"{name}/a", "-q", qos, "-l", stdin=sent)

    assert messages(reader) == [f"{name}/a {qos} {word}" for word in sent.split()]


def test_a_kept_session_has_what_was_missed(run: Run, name: str, version: str) -> None:
    session = ("-V", version, "-i", name[:23], "-q", "1", "-c", "-t", name)
    run("mosquitto_sub", *session, "-E")
    run("mosquitto_pub", "-V", version, "-t", name, "-q", "1", "-m", "missed")

    assert run("mosquitto_sub", *session, "-C", "1") == "missed\n"


def test_retained_messages_are_found_and_removed(run: Run, name: str, version: str) -> None:
    run("mosquitto_pub", "-V", version, "-t", name, "-r", "-m", "kept", "-q", "1")
    found = run("mosquitto_sub", "-V", version, "-t", name, "-C", "1", "-F", "%r %p")
    run("mosquitto_pub", "-V", version, "-t", name, "-r", "-n", "-q", "1")
    with pytest.raises(AssertionError) as nothing:
        run("mosquitto_sub", "-V", version, "-t", name, "-C", "1", "-W", "1")

    assert found == "1 kept\n"
    assert nothing.value.args[0][1] == 27, "its exit status when the time is over"


def test_a_will_of_a_client_that_is_killed(subscribe: Start, name: str, version: str) -> None:
    watcher = subscribe("-V", version, "-t", f"{name}/will", "-C", "1")
    mortal = subscribe(
        *("-V", version, "-t", name),
        *("--will-topic", f"{name}/will", "--will-payload", "killed", "--will-qos", "1"),
    )
    mortal.kill()

    assert messages(watcher) == ["killed"]


def test_properties_of_mqtt_5(run: Run, subscribe: Start, name: str) -> None:
    reader = subscribe("-V", "mqttv5", "-t", name, "-q", "1", "-C", "1", "-F", "%C %D %R %P %p")
    run(
        *("mosquitto_pub", "-V", "mqttv5", "-t", name, "-q", "1", "-m", "3.5"),
        *("-D", "PUBLISH", "content-type", "text/plain"),
        *("-D", "PUBLISH", "correlation-data", "c1"),
        *("-D", "PUBLISH", "response-topic", "answers"),
        *("-D", "PUBLISH", "user-property", "unit", "m"),
        *("-D", "PUBLISH", "user-property", "site", "north"),
    )

    assert messages(reader) == ["text/plain c1 answers unit:m site:north 3.5"]


def test_a_shared_subscription(run: Run, subscribe: Start, name: str) -> None:
    members = [subscribe("-V", "mqttv5", "-t", f"$share/g/{name}", "-C", "2") for _ in range(2)]
    for word in "abcd":
        run("mosquitto_pub", "-t", name, "-q", "1", "-m", word)

    assert sorted(messages(members[0]) + messages(members[1])) == list("abcd")


def test_a_request_and_its_response(run: Run, subscribe: Start, name: str) -> None:
    responder = subscribe("-V", "mqttv5", "-t", name, "-C", "1", "-F", "%R %D")
    asker = ("mosquitto_rr", "-V", "mqttv5", "-t", name, "-e", f"{name}/answer", "-m", "?")
    with pytest.raises(AssertionError) as unanswered:  # nobody answers in time
        run(*asker, "-W", "1", "-D", "PUBLISH", "correlation-data", "7")

    assert messages(responder) == [f"{name}/answer 7"]
    assert unanswered.value.args[0][1] == 27


def test_a_large_file_arrives_whole(
    run: Run, subscribe: Start, name: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("file") / "large"
    path.write_bytes(b"line of a large file\n" * 100_000)
    reader = subscribe("-t", name, "-q", "2", "-C", "1", "-F", "%l")
    run("mosquitto_pub", "-t", name, "-q", "2", "-f", str(path))

    assert messages(reader) == [str(path.stat().st_size)]
