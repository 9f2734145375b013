"""What a post may name: files of listed directories, and public hosts, unless told otherwise."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from penstock_pump.config.settings import Component, settings_of
from penstock_pump.errors import (
    BadPost,
    ForbiddenFile,
    ForbiddenHost,
    SourceMissing,
    UnsupportedSource,
)
from penstock_pump.flow.message import PumpMessage
from penstock_pump.handlers import ReceiveRules
from penstock_pump.posts.post import Post
from penstock_pump.send_handler import SendDestination, SendHandler
from penstock_pump.transports.access import FileRule, HostRule, is_public
from penstock_pump.transports.transport import (
    ByteRange,
    FileSource,
    TransportContext,
    TransportRegistry,
)
from tests.pump.test_transports import Caught


@pytest.fixture
def listed(tmp_path: Path) -> Path:
    folder = tmp_path / "listed"
    (folder / "sub").mkdir(parents=True)
    (folder / "sub" / "f").write_text("ours")
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "secret").chmod(0o600)
    return folder


def read(rule: FileRule, path: str | Path) -> bytes:
    with os.fdopen(rule.open(str(path)), "rb") as file:
        return file.read()


@pytest.mark.parametrize("component", list(Component))
def test_unless_it_is_said_no_file_and_no_inner_host_may_be_named(component: Component) -> None:
    settings = settings_of({"component": component})
    assert (settings.file_directories, settings.private_hosts) == ([], False)


def test_without_a_directory_there_is_no_file_to_name(listed: Path) -> None:
    with pytest.raises(ForbiddenFile, match="file_directories"):
        FileRule().open(str(listed / "sub" / "f"))


def test_a_file_of_a_listed_directory(listed: Path) -> None:
    assert read(FileRule((Path("/nowhere"), listed)), listed / "sub" / "f") == b"ours"


def test_a_listed_directory_may_be_a_link(listed: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(listed)
    for directory in (tmp_path / "link", listed):
        for path in (tmp_path / "link", listed):
            assert read(FileRule((directory,)), path / "sub" / "f") == b"ours"


@pytest.mark.parametrize("path", ["../secret", "sub/../../secret", "out/secret", "to secret"])
def test_no_way_leads_out(path: str, listed: Path, tmp_path: Path) -> None:
    (listed / "out").symlink_to(tmp_path)
    (listed / "to secret").symlink_to("../secret")
    with pytest.raises(ForbiddenFile):
        FileRule((listed,)).open(f"{listed}/{path}")


def test_a_directory_beside_it_whose_name_begins_alike(listed: Path, tmp_path: Path) -> None:
    (tmp_path / "listed too").mkdir()
    (tmp_path / "listed too" / "f").write_text("secret")
    with pytest.raises(ForbiddenFile):
        FileRule((listed,)).open(str(tmp_path / "listed too" / "f"))


@pytest.mark.parametrize("name", ["secret", "nothing", "x" * 300, "secret/below"])
def test_nobody_learns_what_there_is_outside(name: str, listed: Path, tmp_path: Path) -> None:
    with pytest.raises(ForbiddenFile):
        FileRule((listed,)).open(str(tmp_path / name))


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("nothing", SourceMissing),
        ("x" * 300, BadPost),
        ("a\0b", BadPost),
        ("sub", UnsupportedSource),
    ],
)
def test_what_cannot_be_read_inside(name: str, error: type[Exception], listed: Path) -> None:
    with pytest.raises(error):
        FileRule((listed,)).open(f"{listed}/{name}")


def test_a_pipe_holds_nobody_up(listed: Path) -> None:
    os.mkfifo(listed / "pipe")
    with pytest.raises(UnsupportedSource):
        FileRule((listed,)).open(str(listed / "pipe"))


def test_what_was_checked_is_what_is_read(listed: Path, tmp_path: Path) -> None:
    """A file that becomes a link to a secret, again and again, while it is read."""
    path, draft = listed / "f", tmp_path / "draft"
    path.write_text("ours")
    enough = threading.Event()

    def swap() -> None:
        while not enough.is_set():
            draft.symlink_to(tmp_path / "secret")
            draft.rename(path)
            draft.write_text("ours")
            draft.rename(path)

    swapping = threading.Thread(target=swap)
    swapping.start()
    found = set()
    rule = FileRule((listed,))
    try:
        for _ in range(2000):
            try:
                found.add(read(rule, path))
            except ForbiddenFile:
                found.add(b"refused")
    finally:
        enough.set()
        swapping.join()
    assert b"secret" not in found


async def test_the_transport_asks(listed: Path, tmp_path: Path) -> None:
    transports = TransportRegistry(TransportContext(files=FileRule((listed,))))
    caught = Caught()
    await transports.get("file").fetch(FileSource(f"file:{listed}/sub/f"), ByteRange(), caught)
    assert caught.data == b"ours"
    with pytest.raises(ForbiddenFile):
        await transports.get("file").fetch(
            FileSource(f"file:{tmp_path}/secret"), ByteRange(), Caught()
        )


async def send(files: FileRule, base_dir: Path | None, base_url: str, path: str, to: Path) -> None:
    destination = SendDestination(f"file:{to}", base_dir, files)
    sending = SendHandler(destination, ReceiveRules(), TransportRegistry(TransportContext()))
    await sending(Post(moment=0, base_url=base_url, relpath=path), PumpMessage("", b""))


async def test_a_sender_without_base_dir_sends_files_of_listed_directories(
    listed: Path, tmp_path: Path
) -> None:
    to, rule = tmp_path / "to", FileRule((listed,))
    await send(rule, None, "file:", f"{listed}/sub/f", to)
    assert [path.read_text() for path in to.rglob("f")] == ["ours"]
    with pytest.raises(ForbiddenFile):
        await send(rule, None, "file:", f"{tmp_path}/secret", to)


async def test_a_sender_follows_no_link_out_of_base_dir(listed: Path, tmp_path: Path) -> None:
    (listed / "out").symlink_to(tmp_path)
    with pytest.raises(ForbiddenFile):
        await send(FileRule((listed,)), listed, "http://elsewhere/", "out/secret", tmp_path / "to")


@pytest.mark.parametrize(
    "address",
    [
        *("127.0.0.1", "10.1.2.3", "192.168.0.1", "172.16.0.1", "169.254.169.254", "100.64.0.1"),
        *("0.0.0.0", "224.0.1.1", "255.255.255.255", "::1", "::", "fe80::1", "fd00::1", "ff0e::1"),
        *("::ffff:127.0.0.1", "::127.0.0.1", "64:ff9b::7f00:1", "64:ff9b:1::808:808"),
        *("2002:7f00:1::", "2002:a00:1::1"),
    ],
)
def test_addresses_that_are_not_public(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize(
    "address",
    ["8.8.8.8", "2600::1", "::ffff:8.8.8.8", "64:ff9b::808:808", "2002:808:808::1"],
)
def test_addresses_that_are_public(address: str) -> None:
    assert is_public(address)


@pytest.mark.parametrize("host", ["127.0.0.1", "2130706433", "0x7f.1", "localhost", "::1"])
async def test_however_this_machine_is_spelled_it_is_refused_and_the_way_out_is_named(
    host: str,
) -> None:
    with pytest.raises(ForbiddenHost, match="private_hosts"):
        await HostRule().check(host)
