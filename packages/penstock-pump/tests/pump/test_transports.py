"""Every transport fetches, sends and removes alike: files, HTTP, SFTP (OpenSSH's server), FTP."""

from __future__ import annotations

import asyncio
import os
import pwd
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aioftp
import asyncssh
import pytest

from penstock_pump.credentials import PumpCredentials, parse_credentials
from penstock_pump.errors import SourceMissing, SourceUnavailable, UnsupportedSource
from penstock_pump.transports.transport import (
    ByteRange,
    FileSource,
    FileUpload,
    Transport,
    TransportContext,
    TransportRegistry,
)
from tests.fixtures import missing
from tests.peers import PeerMissing, Process, find_program, free_port
from tests.pump.servers import EVERY_FILE, LOOPBACK, serving

DATA = os.urandom(300_000)


@dataclass
class Caught:
    """A sink that keeps all it is fed."""

    data: bytearray = field(default_factory=bytearray)

    @property
    def writer(self) -> Caught:
        return self

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.data += data

    async def feed(self, data: bytes) -> None:
        self.data += data


@dataclass
class Server:
    """A folder, where it is found, and how to get in."""

    folder: Path
    url: str
    credentials: PumpCredentials = field(default_factory=PumpCredentials)
    known_hosts: Path | None = None


@asynccontextmanager
async def sshd(folder: Path, home: Path) -> AsyncIterator[Server]:
    try:
        program = find_program("sshd", "openssh-server", "/usr/sbin")
    except PeerMissing as peer:
        missing(peer)
        raise
    home.mkdir()
    for name in ("host", "user"):
        asyncssh.generate_private_key("ssh-ed25519").write_private_key(home / name)
        (home / name).chmod(0o600)
    host = asyncssh.read_private_key(home / "host").export_public_key().decode()
    user = asyncssh.read_private_key(home / "user").export_public_key()
    (home / "authorized").write_bytes(user)
    port = free_port()
    (home / "known").write_text(f"[127.0.0.1]:{port} {host}")
    with suppress(PermissionError):  # only root's server wants it
        Path("/run/sshd").mkdir(parents=True, exist_ok=True)
    (home / "config").write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {home}/host\nPidFile none\nUsePAM no\n"
        f"AuthorizedKeysFile {home}/authorized\nStrictModes no\nPermitRootLogin yes\n"
        "PasswordAuthentication no\nSubsystem sftp internal-sftp\n"
    )
    process = Process(
        [program, "-D", "-e", "-f", str(home / "config")], home / "log", dict(os.environ)
    )
    try:
        await asyncio.to_thread(process.wait_for_port, port)
        url = f"sftp://{pwd.getpwuid(os.getuid()).pw_name}@127.0.0.1:{port}"
        known = parse_credentials([f"{url}/ ssh_keyfile={home}/user"], "test")
        yield Server(folder, f"{url}{folder}/", known, home / "known")
    finally:
        process.end_group(signal.SIGKILL)


class NameServer(aioftp.Server):
    """Lists names only, as NLST does, which v2 needs."""

    async def build_list_string(self, connection: Any, path: Any) -> str:
        return str(path.name)


@asynccontextmanager
async def ftpd(folder: Path) -> AsyncIterator[Server]:
    user = aioftp.User("me", "se/cret", base_path=folder)
    server = aioftp.Server([user])

    async def site(connection: Any, command: str) -> bool:
        """sr3 sets the modes of what it sends."""
        verb, mode, path = command.split(" ", 2)
        real, _ = server.get_paths(connection, path)
        os.chmod(real, int(mode, 8))  # noqa: PTH101
        connection.response("200" if verb.upper() == "CHMOD" else "502", "")
        return True

    server.commands_mapping["site"] = site
    server.commands_mapping["nlst"] = NameServer([user]).list
    await server.start("127.0.0.1")
    try:
        port = server.server_port
        known = parse_credentials([f"ftp://me:se%2Fcret@127.0.0.1:{port}/ passive,binary"], "test")
        yield Server(folder, f"ftp://me@127.0.0.1:{port}/", known)
    finally:
        await server.close()


@pytest.fixture(params=["file", "http", pytest.param("sftp", marks=pytest.mark.peer), "ftp"])
async def server(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Server]:
    folder = tmp_path / "there"
    folder.mkdir()
    (folder / "a b").write_bytes(DATA)
    async with AsyncExitStack() as stack:
        if request.param == "file":
            yield Server(folder, f"file:{folder}/")
        elif request.param == "http":
            running = stack.enter_context(serving(folder))
            yield Server(folder, running.url)
        elif request.param == "sftp":
            yield await stack.enter_async_context(sshd(folder, tmp_path / "sshd"))
        else:
            yield await stack.enter_async_context(ftpd(folder))


@pytest.fixture
async def transport(server: Server) -> AsyncIterator[Transport]:
    transports = TransportRegistry(
        TransportContext(server.credentials, LOOPBACK, 20.0, 16, server.known_hosts, EVERY_FILE)
    )
    yield transports.get(server.url.partition(":")[0])
    await transports.close()


@pytest.mark.parametrize(
    "span",
    [ByteRange(), ByteRange(0, 100_000), ByteRange(123_456), ByteRange(100_000, 150_001)],
    ids=str,
)
async def test_a_file_or_a_stretch_of_it(
    server: Server, transport: Transport, span: ByteRange
) -> None:
    caught = Caught()
    await transport.fetch(FileSource(server.url + "a%20b"), span, caught)
    end = len(DATA) if span.length is None else span.offset + span.length
    assert bytes(caught.data) == DATA[span.offset : end]


async def test_several_at_a_time(server: Server, transport: Transport) -> None:
    sinks = [Caught() for _ in range(8)]
    source = FileSource(server.url + "a%20b")
    await asyncio.gather(*(transport.fetch(source, ByteRange(), sink) for sink in sinks))
    assert all(bytes(sink.data) == DATA for sink in sinks)


async def test_a_file_that_is_not_there(server: Server, transport: Transport) -> None:
    with pytest.raises(SourceMissing):
        await transport.fetch(FileSource(server.url + "nothing"), ByteRange(), Caught())


async def test_a_file_sent_replaced_and_removed(
    server: Server, transport: Transport, tmp_path: Path
) -> None:
    path = tmp_path / "ours"
    target = FileSource(server.url + "new/deep/c%20d")
    for content in (b"first", b"second", b""):
        path.write_bytes(content)
        await transport.send(FileUpload(path, ".tmp", 0o640, 10**18, files=EVERY_FILE), target)
        assert (server.folder / "new/deep/c d").read_bytes() == content
        assert not (server.folder / "new/deep/c d").is_symlink()
    assert [each.name for each in (server.folder / "new/deep").iterdir()] == ["c d"]
    await transport.remove(target)
    assert not (server.folder / "new/deep/c d").exists()
    await transport.remove(target)


async def test_the_files_and_directories_of_a_server(server: Server, transport: Transport) -> None:
    (server.folder / "deep").mkdir()
    os.utime(server.folder / "a b", (1_700_000_040, 1_700_000_040))
    found = {each.name: each for each in await transport.list(FileSource(server.url))}
    assert set(found) == {"a b", "deep"}
    assert (found["a b"].is_directory, found["deep"].is_directory) == (False, True)
    assert found["a b"].size == len(DATA)
    at = found["a b"].mtime
    assert at is not None
    assert abs(at / 1e9 - 1_700_000_040) <= 60  # an index has minutes
    with pytest.raises(SourceMissing):
        await transport.list(FileSource(server.url + "nothing/"))


async def test_links_and_directories_where_the_server_has_them(
    server: Server, transport: Transport
) -> None:
    scheme = server.url.partition(":")[0]
    if scheme in ("file", "sftp"):
        for aim in ("../a b", "a b"):
            await transport.make_link(FileSource(server.url + "new/link"), aim)
            assert os.fspath((server.folder / "new/link").readlink()) == aim
    else:
        with pytest.raises(UnsupportedSource):
            await transport.make_link(FileSource(server.url + "link"), "a b")
    await transport.make_directory(FileSource(server.url + "made/here"), 0o750)
    assert (server.folder / "made/here").is_dir() is (scheme != "http")
    await transport.remove_directory(FileSource(server.url + "made/here"))
    await transport.remove_directory(FileSource(server.url + "made/here"))
    assert not (server.folder / "made/here").exists()


async def test_blocks_in_any_order(server: Server, transport: Transport, tmp_path: Path) -> None:
    if not transport.can_write_blocks:
        return
    path = tmp_path / "ours"
    path.write_bytes(DATA)
    temporary, target = FileSource(server.url + "x/new.1.tmp"), FileSource(server.url + "x/new")
    upload = FileUpload(path, ".tmp", 0o600, 10**18, files=EVERY_FILE)
    for offset, length in ((200_000, 100_000), (0, 200_000)):
        block = FileUpload(path, ".tmp", span=ByteRange(offset, length), files=EVERY_FILE)
        await transport.write_block(block, temporary, offset)
    for _ in range(2):  # a second time does no harm
        await transport.finish_file(upload, temporary, target)
    assert (server.folder / "x/new").read_bytes() == DATA
    assert [each.name for each in (server.folder / "x").iterdir()] == ["new"]


@pytest.mark.parametrize("scheme", ["http", "sftp", "ftp"])
async def test_a_server_that_is_not_there(scheme: str) -> None:
    transports = TransportRegistry(TransportContext(hosts=LOOPBACK, timeout=5.0))
    source = FileSource(f"{scheme}://127.0.0.1:{free_port()}/f")
    with pytest.raises(SourceUnavailable):
        await transports.get(scheme).fetch(source, ByteRange(), Caught())
    await transports.close()


@pytest.mark.parametrize("kind", ["folder", "pipe"])
async def test_what_is_no_file_is_refused_and_holds_nobody_up(kind: str, tmp_path: Path) -> None:
    place = tmp_path / "it"
    place.mkdir() if kind == "folder" else os.mkfifo(place)
    transports = TransportRegistry(TransportContext(files=EVERY_FILE))
    with pytest.raises(UnsupportedSource):
        await transports.get("file").fetch(FileSource(f"file:{place}"), ByteRange(), Caught())


def test_a_scheme_nobody_has() -> None:
    with pytest.raises(UnsupportedSource):
        TransportRegistry(TransportContext()).get("gopher")


async def test_redirects_are_followed_and_not_for_ever(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(DATA)
    transports = TransportRegistry(TransportContext(hosts=LOOPBACK, timeout=5.0))
    with serving(tmp_path) as server:
        server.faults = ["to:/f"]
        caught = Caught()
        await transports.get("http").fetch(
            FileSource(server.url + "elsewhere"), ByteRange(), caught
        )
        assert bytes(caught.data) == DATA
        server.faults = ["to:/f"] * 10
        with pytest.raises(SourceUnavailable, match="redirects"):
            await transports.get("http").fetch(FileSource(server.url + "f"), ByteRange(), Caught())
    await transports.close()


async def test_credentials_of_one_server_are_not_given_to_another(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(DATA)
    with serving(tmp_path) as first, serving(tmp_path) as second:
        known = parse_credentials([f"{first.url} bearer_token=secret"], "test")
        transports = TransportRegistry(TransportContext(known, LOOPBACK, 5.0))
        first.faults = [f"to:{second.url}f"]
        await transports.get("http").fetch(FileSource(first.url + "f"), ByteRange(), Caught())
        assert (first.authorized, second.authorized) == (["Bearer secret"], [None])
        await transports.close()
