"""Users of an LDAP directory, with OpenLDAP's server."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pika
import pytest
from pika.exceptions import AMQPError

from penstock.broker.auth.ldap import LdapBackend
from penstock.broker.user import User
from penstock.broker.users import Users
from penstock.core.config import BrokerSettings, LdapSettings
from penstock.core.errors import AuthenticationFailed
from penstock.core.settings_model import SettingsError
from penstock.server.broker import Broker
from tests.broker.auth.directory import BASE, READER, Directory
from tests.broker.users.ground import Clock
from tests.client.test_tls import write_certificate
from tests.fixtures import missing
from tests.peers import PeerMissing, free_port

PATTERN: dict[str, Any] = {"user_dn_pattern": f"uid=${{username}},ou=people,{BASE}"}
SEARCH: dict[str, Any] = {
    "user_base": f"ou=people,{BASE}",
    "bind_dn": READER,
    "bind_password": "read",
}
GROUPS: dict[str, Any] = {
    "group_base": f"ou=groups,{BASE}",
    "groups": {
        "operators": ["tag:administrator", "configure:*/*"],
        "readers": ["read:*/*"],
        "*": ["write:*/public-*"],
    },
}


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Directory]:
    folder = tmp_path_factory.mktemp("slapd")
    try:
        directory = Directory(folder, write_certificate(folder))
    except PeerMissing as error:
        missing(error)
    directory.start()
    yield directory
    directory.stop()


def backend_of(directory: Directory, **settings: Any) -> LdapBackend:
    return LdapBackend(LdapSettings(**{"urls": [directory.url], **PATTERN, **GROUPS, **settings}))


async def login(backend: LdapBackend, name: str = "ada", password: str = "secret") -> User:
    return await backend.authenticate(name, password.encode(), address="127.0.0.1")


@pytest.mark.parametrize("way", [PATTERN, {**PATTERN, **SEARCH, "user_base": ""}, SEARCH])
async def test_groups_are_tags_and_permissions(
    directory: Directory, tmp_path: Path, way: dict[str, Any]
) -> None:
    users = Users(tmp_path / "users.json")
    backend = LdapBackend(LdapSettings(**{"urls": [directory.url], **GROUPS, **way}))
    ada, eve = await login(backend), await login(backend, "eve")

    assert (ada.name, ada.tags, ada.origin, ada.expires) == (
        "ada",
        ("administrator",),
        "ldap",
        None,
    )
    assert users.is_allowed(ada, "/", "configure", "q")
    assert users.is_allowed(ada, "/", "read", "q")
    assert (eve.tags, users.is_allowed(eve, "/", "read", "q")) == ((), False)
    assert users.is_allowed(eve, "/", "write", "public-1")


@pytest.mark.parametrize(
    ("name", "password"),
    [
        ("ada", "wrong"),
        ("ada", ""),
        ("", ""),
        ("nobody", "secret"),
        ("ada,ou=people", "secret"),
        ("*", "secret"),
        ("ad*", "secret"),
        ("ada)(uid=*", "secret"),
        ("ada\0", "secret"),
    ],
)
@pytest.mark.parametrize("way", [PATTERN, SEARCH])
async def test_a_wrong_login_is_refused(
    directory: Directory, way: dict[str, Any], name: str, password: str
) -> None:
    backend = LdapBackend(LdapSettings(urls=[directory.url], **GROUPS, **way))
    with pytest.raises(AuthenticationFailed):
        await login(backend, name, password)


async def test_a_password_that_is_not_text_is_refused(directory: Directory) -> None:
    with pytest.raises(AuthenticationFailed):
        await backend_of(directory).authenticate("ada", b"\xff", address="127.0.0.1")


async def test_an_ambiguous_name_is_nobodys(directory: Directory) -> None:
    settings = {**SEARCH, "user_filter": "(mail=${username})"}
    backend = LdapBackend(LdapSettings(urls=[directory.url], **settings))

    assert (await login(backend, "ada@example.org")).name == "ada@example.org"
    with pytest.raises(AuthenticationFailed, match="invalid credentials"):
        await login(backend, "shared@example.org")


@pytest.mark.parametrize("way", ["ldaps", "start_tls"])
async def test_connections_are_encrypted_and_the_server_is_verified(
    directory: Directory, way: str
) -> None:
    secure = {
        "urls": [directory.secure_url if way == "ldaps" else directory.url],
        "start_tls": way == "start_tls",
    }

    assert (await login(backend_of(directory, **secure, authority=directory.authority))).tags
    with pytest.raises(AuthenticationFailed, match="not available"):
        await login(backend_of(directory, **secure))


async def test_the_next_server_is_tried(directory: Directory) -> None:
    dead = f"ldap://127.0.0.1:{free_port()}"

    assert (await login(backend_of(directory, urls=[dead, directory.url]))).name == "ada"
    with pytest.raises(AuthenticationFailed, match="not available"):
        await login(backend_of(directory, urls=[dead]))


async def test_a_wrong_reader_is_an_error_not_a_wrong_password(directory: Directory) -> None:
    settings = {**SEARCH, "bind_password": "wrong"}
    backend = LdapBackend(LdapSettings(urls=[directory.url], **settings))
    with pytest.raises(AuthenticationFailed, match="not available"):
        await login(backend)


async def test_accepted_logins_are_cached_for_a_while(
    directory: Directory, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    settings = LdapSettings(urls=[directory.url], cache=10, **PATTERN)
    backend = LdapBackend(settings, clock=clock)
    asked = []
    find = backend._find

    def counted(name: str, password: str) -> User | None:
        asked.append(name)
        return find(name, password)

    monkeypatch.setattr(backend, "_find", counted)
    await asyncio.gather(*(login(backend) for _ in range(10)))
    await login(backend)
    assert len(asked) == 1
    with pytest.raises(AuthenticationFailed):
        await login(backend, "ada", "wrong")
    clock.now = 11
    await login(backend)
    assert len(asked) == 3


async def test_a_broker_asks_its_directory_and_its_own_users(
    directory: Directory, tmp_path: Path
) -> None:
    ldap = LdapSettings(urls=[directory.url], **PATTERN, **GROUPS)
    settings = BrokerSettings(
        listen=["amqp://127.0.0.1:0"], auth_backends=["ldap", "internal"], ldap=ldap
    )

    def work(url: str) -> None:
        for credentials in ("ada:secret", "guest:guest"):
            connection = pika.BlockingConnection(
                pika.URLParameters(url.replace("://", f"://{credentials}@"))
            )
            connection.channel().queue_declare("q")
            connection.close()
        with pytest.raises(AMQPError):
            pika.BlockingConnection(pika.URLParameters(url.replace("://", "://ada:guest@")))

    async with Broker(settings, data=tmp_path) as broker:
        await asyncio.to_thread(work, broker.addresses[0])


@pytest.mark.parametrize(
    "settings",
    [
        {"urls": ["ldap://directory.example"], **PATTERN},
        {"urls": ["https://directory.example"], **PATTERN},
        {"urls": ["ldaps://directory.example"], "start_tls": True, **PATTERN},
        {"urls": ["ldaps://directory.example"]},
        {"urls": ["ldaps://directory.example"], **PATTERN, "user_base": BASE},
        {"urls": ["ldaps://directory.example"], "user_dn_pattern": "uid=ada"},
    ],
)
def test_settings_that_cannot_work_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(SettingsError):
        LdapSettings(**settings)
