"""Plugins that sr3 ships: the same configuration runs under sr3 and under Penstock, with the same
result. The services that they use are loopback servers which speak their protocols.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import ssl
import subprocess
import sys
import threading
import urllib.request
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from email import message_from_bytes, policy
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from penstock.client import connect
from penstock_pump.callbacks import flow_callbacks
from penstock_pump.components import post
from penstock_pump.config.settings import settings_of
from penstock_pump.files.target import LocalTarget
from penstock_pump.plugins import load_plugins
from penstock_pump.posts.formats import read_post
from penstock_pump.posts.parts import Parts
from penstock_pump.posts.post import Post
from tests.integration.pump.running import settings, tree, until
from tests.integration.pump.sarracenia import PROGRAMS, Sarracenia
from tests.peers import Penstock, Process, free_port
from tests.pump.servers import serving
from tests.pump.test_addresses import write_certificate
from tests.pump.test_proxy import Proxy

pytestmark = [pytest.mark.peer, pytest.mark.timeout(300)]

#: As in an environment with both, but ours come first.
BOTH = "import sys; sys.path.append(sys.argv.pop(1)); from penstock.__main__ import main; main()"
READY = "penstock pump ready"


class PumpPrograms(Sarracenia):
    """Our programs with the same configurations; sr3 is installed beside them."""

    def configure(self, component: str, text: str, name: str = "t") -> None:
        (self._conf / "default.conf").write_text("private_hosts on\nfile_directories /\n")
        super().configure(component, text, name)

    def running_component(
        self, component: str, name: str = "t", end: signal.Signals = signal.SIGTERM
    ) -> AbstractAsyncContextManager[None]:
        return self._running_ours(component, name)

    @asynccontextmanager
    async def _running_ours(self, component: str, name: str) -> AsyncIterator[None]:
        (packages,) = PROGRAMS.parent.glob("lib/python3*/site-packages")
        log = self._home / "ours"
        conf = self._conf / component / f"{name}.conf"
        command = [sys.executable, "-c", BOTH, str(packages), "pump", "--conf", str(conf)]
        environment = {**os.environ, "XDG_STATE_HOME": str(self._home / "state")}
        process = Process(command, log, {**environment, "HOME": str(self._home)})
        try:
            await asyncio.to_thread(process.wait_for_line, READY)
            yield
        finally:
            process.end(signal.SIGTERM)
            self.output = process.output()

    async def run(self, program: str, *arguments: str) -> None:
        """Our alias of the program."""
        (packages,) = PROGRAMS.parent.glob("lib/python3*/site-packages")
        command = [sys.executable, "-c", BOTH, str(packages), "pump", "sarracenia", program]
        environment = {
            **os.environ,
            "XDG_STATE_HOME": str(self._home / "state"),
            "XDG_CONFIG_HOME": str(self._home / "config"),
            "HOME": str(self._home),
        }
        done = await asyncio.to_thread(
            subprocess.run,
            [*command, *arguments], env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done


@pytest.fixture(params=["sr3", "penstock"])
def program(request: pytest.FixtureRequest, penstock: Penstock, tmp_path: Path) -> Sarracenia:
    made = Sarracenia if request.param == "sr3" else PumpPrograms
    return made(tmp_path / "home", penstock, "sr3", "sr3")


@asynccontextmanager
async def consuming(
    program: Sarracenia,
    broker: Penstock,
    name: str,
    component: str,
    text: str,
    end: signal.Signals = signal.SIGKILL,
) -> AsyncIterator[None]:
    """A component that consumes from exchange `x<name>`."""
    program.configure(
        component,
        f"broker {program.broker}\nexchange x{name}\nqueueName q_guest_{name}\nsubtopic #\n{text}",
    )
    async with connect(broker.url) as fabric:
        # sr3 will not bind to an exchange that is not there.
        await fabric.publish("nobody.listens", b"", exchange=f"x{name}")
        await fabric.publish("nobody.listens", b"", exchange=f"y{name}")
    if not isinstance(program, PumpPrograms):
        await program.run("sr3", "declare", f"{component}/t")
    async with program.running_component(component, end=end):
        yield


async def announce(broker: Penstock, name: str, state: Path, folder: Path, base_url: str) -> None:
    posts = settings(
        "post", broker.url, state, dialect="sr3", folders=False, post_exchange=f"x{name}",
        path=[folder], post_base_url=base_url, post_base_dir=folder,
    )  # fmt: skip
    await post(posts)


@asynccontextmanager
async def announced(
    program: Sarracenia, broker: Penstock, name: str, component: str, text: str
) -> AsyncIterator[Callable[[int], Any]]:
    """A component that publishes to exchange `y<name>`; to call with the number of posts."""
    program.configure(
        component,
        f"post_broker {program.broker}\npost_exchange y{name}\nlogLevel debug\n{text}",
    )
    async with connect(broker.url) as fabric:
        async with fabric.subscribe("v03.#", exchange=f"y{name}") as inflow:

            async def receive(count: int) -> list[Post]:
                async with asyncio.timeout(60):
                    found = [await inflow.receive() for _ in range(count)]
                return [read_post(each.body, each.headers) for each in found]

            async with program.running_component(component):
                yield receive


def write(folder: Path, *names: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).write_text(f"content of {name}\n")
    return folder


async def test_key_filter_reads_the_groups_of_patterns(
    program: Sarracenia, penstock: Penstock, name: str, tmp_path: Path
) -> None:
    there = write(tmp_path / "there", "AACN01_CWAO_1", "AACN02_CWAO_2", "SACN01_CWAO_3", "other")
    here = tmp_path / "here"
    here.mkdir()
    text = (
        f"acceptUnmatched False\ncallback accept.key_filter\naccept_key AACN01_CWAO\n"
        f"reject_key SACN01_CWAO\ndirectory {here}\n"
        "accept .*/([A-Z]{4}[0-9]{2}_[A-Z]{4}).* key_groups=1\naccept .*other\n"
    )
    with serving(there) as server:
        async with consuming(program, penstock, name, "subscribe", text):
            await announce(penstock, name, tmp_path / "p", there, server.url)
            await until(lambda: set(tree(here)) == {"AACN01_CWAO_1", "other"})


class MailServer:
    """Enough of SMTP to take letters."""

    def __init__(self) -> None:
        self.letters: list[tuple[str, bytes]] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 here\r\n")
        recipient = ""
        while line := (await reader.readline()).decode().strip():
            verb = line[:4].upper()
            if verb == "RCPT":
                recipient = line.partition("<")[2].partition(">")[0]
            if verb == "DATA":
                writer.write(b"354 go on\r\n")
                data = await reader.readuntil(b"\r\n.\r\n")
                self.letters.append((recipient, data.removesuffix(b"\r\n.\r\n")))
            writer.write(b"221 bye\r\n" if verb == "QUIT" else b"250 fine\r\n")
            if verb == "QUIT":
                break
        writer.close()


async def test_email_sends_files_to_those_named_after_patterns(
    program: Sarracenia, penstock: Penstock, name: str, tmp_path: Path
) -> None:
    there = write(tmp_path / "there", "AACN27.txt", "SXCN.txt")
    mail = MailServer()
    server = await asyncio.start_server(mail.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    text = (
        f"callback send.email\nsendTo smtp://127.0.0.1:{port}\nemail_from me@example.org\n"
        f"email_subject_prepend From us:\nbaseDir {there}\nacceptUnmatched False\n"
        "accept .*AACN27.* one@example.org\n"
        "accept .*SXCN.* DESTFN=renamed two@example.org,three@example.org\n"
    )
    async with server, consuming(program, penstock, name, "sender", text):
        await announce(penstock, name, tmp_path / "p", there, "http://127.0.0.1/")
        await until(lambda: len(mail.letters) == 3)
    found = {}
    for recipient, data in mail.letters:
        letter = message_from_bytes(data, policy=policy.default)
        found[recipient] = (letter["Subject"], letter["From"], letter.get_content().strip())
    assert found == {
        "one@example.org": ("From us: AACN27.txt", "me@example.org", "content of AACN27.txt"),
        "two@example.org": ("From us: renamed", "me@example.org", "content of SXCN.txt"),
        "three@example.org": ("From us: renamed", "me@example.org", "content of SXCN.txt"),
    }


@pytest.fixture
def s3_endpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    pytest.importorskip("moto.server")
    port = free_port()
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    process = Process(command, tmp_path / "moto", {**os.environ, "PYTHONWARNINGS": "ignore"})
    url = f"http://127.0.0.1:{port}"
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", url)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    try:
        process.wait_for_port(port)
        request = urllib.request.Request(f"{url}/bucket", method="PUT")
        urllib.request.urlopen(request, timeout=10).close()
        yield url
    finally:
        process.end_group(signal.SIGKILL)


async def test_s3_cloud_sender_uploads_and_announces(
    program: Sarracenia, penstock: Penstock, name: str, tmp_path: Path, s3_endpoint: str
) -> None:
    there = write(tmp_path / "there", "a.txt")
    program.add_credential("s3://key:se%2Fcret@None")
    text = (
        "callback send.s3CloudSender.S3CloudSender\nsendTo s3://key@None\n"
        f"directory bucket/radar\nmirror off\nbaseDir {there}\npost_urlType s3_uri\npost_baseUrl s3://\n"
        f"post_broker {program.broker}\npost_exchange y{name}\naccept .*\n"
    )
    async with connect(penstock.url) as fabric:
        async with fabric.subscribe("#", exchange=f"y{name}") as inflow:
            async with consuming(program, penstock, name, "sender", text):
                await announce(penstock, name, tmp_path / "p", there, "http://127.0.0.1/")
                body: dict[str, Any] = {}
                async with asyncio.timeout(60):
                    while "relPath" not in body:
                        body = json.loads((await inflow.receive()).body or b"{}")
    keys = {"aws_access_key_id": "key", "aws_secret_access_key": "se/cret"}
    client = pytest.importorskip("boto3").client("s3", endpoint_url=s3_endpoint, **keys)
    stored = client.get_object(Bucket="bucket", Key="radar/a.txt")["Body"].read()
    assert stored == b"content of a.txt\n"
    assert (body["baseUrl"], body["relPath"]) == ("s3://", "bucket/radar/a.txt")


V2_PLUGIN = """
class Upper(object):
    def __init__(self, parent):
        pass
    def on_message(self, parent):
        parent.msg.new_file = parent.msg.new_file.upper()
        return 'secret' not in parent.msg.relpath
self.plugin = 'Upper'
"""


async def test_plugins_of_v2_which_sr3_runs_with_its_v2wrapper(
    program: Sarracenia, penstock: Penstock, name: str, tmp_path: Path
) -> None:
    there, here = write(tmp_path / "there", "a.txt", "secret.txt"), tmp_path / "here"
    here.mkdir()
    plugins = tmp_path / "home" / "config" / "sr3" / "plugins"
    write(plugins)
    (plugins / "upper.py").write_text(V2_PLUGIN)
    text = f"plugin upper.py\ndirectory {here}\naccept .*\n"
    with serving(there) as server:
        async with consuming(program, penstock, name, "subscribe", text):
            await announce(penstock, name, tmp_path / "p", there, server.url)
            await until(lambda: set(tree(here)) == {"A.TXT"})


class Service(ThreadingHTTPServer):
    """Answers with JSON: `answers` has functions of the path, by its beginning."""

    daemon_threads = True

    def __init__(self, answers: dict[str, Callable[[str], Any]]) -> None:
        super().__init__(("127.0.0.1", 0), _ServiceHandler)
        self.answers = answers
        self.asked: list[tuple[str, str, str | None, bytes]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/"


class _ServiceHandler(BaseHTTPRequestHandler):
    server: Service

    def _answer(self) -> None:
        data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        given = self.headers.get("Authorization")
        self.server.asked.append((self.command, self.path, given, data))
        for beginning, answer in self.server.answers.items():
            if self.path.startswith(beginning):
                body = answer(self.path)
                break
        else:
            self.send_error(404)
            return
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(201 if "KiWebPortal" in self.path else 200)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Last-Modified", "Mon, 02 Jun 2025 15:42:02 GMT")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    do_GET = do_POST = do_HEAD = _answer

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the standard's name
        pass


@contextmanager
def service(
    answers: dict[str, Callable[[str], Any]], tls: ssl.SSLContext | None = None
) -> Iterator[Service]:
    with Service(answers) as server:
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


TOKEN = {
    "access_token": "a.token.of.ours",
    "expires_in": 3600,
    "refresh_token": "r",
    "refresh_expires_in": 3600,
}


@pytest.mark.parametrize(
    ("plugin", "options"),
    [
        ("bc_trans", "tokenEndpoint_baseUrl {url}\ntokenEndpoint_path token\n"),
        ("eumetsat", "apiTokenUrl {url}token\n"),
        ("copernicus", "openidConnectUrl {url}token\n"),
        ("nasa_earthdata", "earthdataUrl {url}\n"),
    ],
)
async def test_tokens_of_authentication_plugins_are_used_to_download(
    plugin: str,
    options: str,
    program: Sarracenia,
    penstock: Penstock,
    name: str,
    tmp_path: Path,
) -> None:
    there, here = write(tmp_path / "there", "a.txt"), tmp_path / "here"
    here.mkdir()
    answers: dict[str, Callable[[str], Any]] = {
        "/token": lambda _: TOKEN,
        "/api/users/tokens": lambda _: [{**TOKEN, "expiration_date": "01/01/2100"}],
    }
    with serving(there) as server, service(answers) as tokens:
        program.add_credential(tokens.url.replace("//", "//client:secret@"))
        text = (
            f"callback authenticate.{plugin}\n{options.format(url=tokens.url)}directory {here}\n"
            "accept .*\n"
        )
        async with consuming(program, penstock, name, "subscribe", text):
            await announce(penstock, name, tmp_path / "p", there, server.url)
            await until(lambda: set(tree(here)) == {"a.txt"})
        assert server.authorized == ["Bearer a.token.of.ours"]
        _, _, basic, data = tokens.asked[0]
        assert basic == "Basic Y2xpZW50OnNlY3JldA==" or b"username=client&password=secret" in data


async def test_a_poll_that_reads_other_pages(
    program: Sarracenia, penstock: Penstock, name: str, tmp_path: Path
) -> None:
    page = b"<html><a href='x'>MLS-Aura_L2GP_1.he5</a><a href='y'>readme</a></html>"
    with service({"/data": lambda _: page}) as server:
        text = (
            f"callback poll.nasa_mls_nrt\npollUrl {server.url}\npath data\nsleep 1\n"
            "scheduled_interval 1\nfileAgeMax 0\nacceptUnmatched on\n"
        )
        async with announced(program, penstock, name, "poll", text) as receive:
            (found,) = await receive(1)
            asked = len(server.asked)
            await until(lambda: len(server.asked) > asked + 1)
    assert found.url == f"{server.url}data/MLS-Aura_L2GP_1.he5"


CMR = {
    "items": [
        {
            "umm": {
                "RelatedUrls": [
                    {"URL": "https://d.example.org/p/g.nc", "Type": "GET DATA", "Description": "-"}
                ]
            }
        }
    ]
}
ODATA = {
    "value": [
        {
            "Id": "d86d",
            "Name": "S1A_COG.SAFE",
            "ContentLength": 12,
            "ModificationDate": "2026-05-06T12:42:38.119Z",
        }
    ]
}


@pytest.mark.parametrize(
    ("plugin", "options", "files"),
    [
        (
            "nasa_cmr",
            "pollUrl {url}search\ncollectionConceptId C1\ndataSource other\n"
            "relatedUrl_type GET DATA\n",
            [("https://d.example.org/", "g.nc", None)],
        ),
        (
            "odata",
            "pollUrl {url}odata?$filter=\npost_baseUrl https://z.example.org/v1/\n"
            "post_urlTemplate Products(--PRODUCT_ID--)/$value\n",
            # sr3 keeps the directory of the path to retrieve before the name.
            [("https://z.example.org/v1/", "S1A_COG.SAFE", "Products(d86d)/$value")],
        ),
    ],
)
async def test_polls_of_catalogues(
    plugin: str,
    options: str,
    files: list[tuple[str, str, str | None]],
    program: Sarracenia,
    penstock: Penstock,
    name: str,
) -> None:
    answers: dict[str, Callable[[str], Any]] = {"/search": lambda _: CMR, "/odata": lambda _: ODATA}
    with service(answers) as server:
        text = (
            f"callback poll.{plugin}\n{options.format(url=server.url)}sleep 1\n"
            "scheduled_interval 1\nfileAgeMax 0\nacceptUnmatched on\n"
        )
        async with announced(program, penstock, name, "poll", text) as receive:
            found = await receive(len(files))
            asked = len(server.asked)
            await until(lambda: len(server.asked) > asked + 1)
    assert [(each.base_url, each.name, each.retrieve) for each in found] == files


async def test_a_scheduled_flow_announces_paths_with_their_size_and_time(
    program: Sarracenia, penstock: Penstock, name: str
) -> None:
    with service({"/fax/a.gif": lambda _: b"four"}) as server:
        text = (
            "callback scheduled.http_with_metadata\ncallback post.message\n"
            f"post_baseUrl {server.url}fax/\npath a.gif\npath missing.gif\nscheduled_interval 1\n"
        )
        async with announced(program, penstock, name, "flow", text) as receive:
            found = await receive(2)
    for each in found:
        assert each.url == f"{server.url}fax/a.gif"
        assert each.parts is not None
        assert each.parts.file_size == 4


class KiwisProxy(Proxy):
    """The plugin always asks port 443 of its server: a proxy leads it to ours."""

    def __init__(self, port: int) -> None:
        super().__init__(socks=False)
        self._port = port

    async def _http(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> tuple[str, int]:
        self.asked.append((await super()._http(reader, writer))[0])
        return "127.0.0.1", self._port


KIWIS: dict[str, Any] = {
    "getStationList": [["station_name", "station_no", "station_id"], ["Dam", "0_7", "1"]],
    "getTimeseriesList": [
        ["ts_id", "ts_name", "parametertype_name"],
        ["5", "caw_Cmd", "Water Level"],
        ["6", "other", "Water Level"],
    ],
    "getParameterList": [["station_no", "parametertype_name"], ["0_7", "Water Level"]],
    "getTimeseriesValues": [
        {"data": [["2026-11-18T00:00:00.000Z", 1.5]], "columns": "Timestamp,Value"}
    ],
}


def kiwis(path: str) -> Any:
    request = parse_qs(urlsplit(path).query).get("request", [""])[0]
    return KIWIS.get(request, {})


async def test_time_series_of_wiski_become_files_and_posts(
    program: Sarracenia,
    penstock: Penstock,
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    here = tmp_path / "here"
    here.mkdir()
    certificate = write_certificate(tmp_path, "kiwis.example.org")
    program.add_credential("https://me:secret@kiwis.example.org")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    answers: dict[str, Callable[[str], Any]] = {
        "/KiWebPortal/rest/auth/oidcServer/token": lambda _: {"access_token": "a.token"},
        "/KiWIS/KiWIS": kiwis,
    }
    with service(answers, context) as server:
        proxy = KiwisProxy(server.server_address[1])
        proxy_server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
        port = proxy_server.sockets[0].getsockname()[1]
        monkeypatch.setenv("HTTPS_PROXY", f"http://me:secret@127.0.0.1:{port}")
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(certificate))
        text = (
            "callback scheduled.wiski\ncallback post.message\npollUrl https://kiwis.example.org\n"
            f"wiski_ts_name caw_Cmd\nscheduled_interval 2\ndirectory {here}\n"
            f"post_baseUrl file:/\npost_baseDir {here}\n"
        )
        async with proxy_server, announced(program, penstock, name, "flow", text) as receive:
            (found,) = await receive(1)
        tokens = {given for _, path, given, _ in server.asked if path.startswith("/KiWIS")}
    assert found.name == "ts_caw-Cmd_0-7__Water-Level.csv"
    assert (here / found.name).read_text().endswith(",1.5\n")
    assert tokens == {"Bearer a.token"}
    assert set(proxy.asked) >= {"kiwis.example.org"}


#: Run with sr3 alone: prints the error of `after_accept`.
CALL = """
import sys, types
import sarracenia, sarracenia.config, sarracenia.flowcb
options = sarracenia.config.no_file_config()
options.component, options.config, options.action = 'subscribe', 't', 'start'
message = sarracenia.Message()
message.update({'pubTime': '20231114T221320', 'baseUrl': 'http://h/', 'relPath': 'a/b/f.txt',
    'new_dir': '/nowhere', 'new_file': 'f.txt', '_deleteOnPost': set(), 'size': 3})
work = types.SimpleNamespace(incoming=[message], ok=[], rejected=[], failed=[])
plugin = sarracenia.flowcb.load_library(sys.argv[1], options)
try:
    plugin.after_accept(work)
except Exception as error:
    print(repr(error))
"""


@pytest.mark.parametrize(
    ("plugin", "error"),
    [
        ("accept.speedo", "KeyError('partstr')"),
        ("accept.distbydir", "TypeError('Strings must be encoded before hashing')"),
        ("accept.renamedmf.RenameDMF", "KeyError('rename')"),
        ("accept.downloadbaseurl.DownloadBaseUrl", "AttributeError("),
    ],
)
async def test_plugins_that_fail_in_sr3_fail_here_and_the_post_passes(
    plugin: str, error: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = [str(PROGRAMS / "python"), "-c", CALL, plugin]
    environment = {**os.environ, "HOME": str(tmp_path)}
    found = await asyncio.to_thread(
        subprocess.run, command, env=environment, capture_output=True, text=True, check=True
    )
    assert found.stdout.strip().splitlines()[-1].startswith(error)

    failures: list[str] = []
    monkeypatch.setattr(
        flow_callbacks, "_log_failure", lambda _, error: failures.append(repr(error))
    )
    (packages,) = PROGRAMS.parent.glob("lib/python3*/site-packages")
    given = {"plugins": [f"callback {plugin}"], "plugin_path": [packages]}
    plugins = load_plugins(settings_of({"component": "subscribe", "dialect": "sr3", **given}))
    announcement = Post(
        moment=1, base_url="http://h/", relpath="a/b/f.txt", parts=Parts.whole(3), source="me"
    )
    assert len(await plugins.accept(announcement, LocalTarget("/nowhere", "f.txt"))) == 1
    (failure,) = failures
    assert failure.startswith(error)
