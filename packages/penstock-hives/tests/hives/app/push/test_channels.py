"""Pushes reach browsers and phones: here their services are local, and everything else is real."""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import http_ece  # type: ignore[import-untyped]
import httpx
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from penstock.core.errors import ConfigurationError
from penstock_hives.errors import InvalidRequest
from penstock_hives.push.fcm import FcmChannel, fcm_message, open_fcm
from penstock_hives.push.models import PushMessage, PushStatus
from penstock_hives.push.webpush import (
    VapidSigner,
    WebPushChannel,
    check_endpoint,
    check_keys,
    open_vapid_key,
)
from tests.hives.app.push.services import Answer, Browser, PushService


def push(address: str, keys: dict[str, str], channel: str = "webpush") -> PushMessage:
    return PushMessage(
        1,
        42,
        channel,
        7,
        address,
        keys,
        "The Comb is filling up",
        "It is 82 % full now.",
        "/hives/1",
        {"percent": 82.4},
        1,
        datetime(2030, 1, 1, tzinfo=UTC),
    )


@pytest.fixture(scope="module")
def service() -> Iterator[PushService]:
    with PushService() as service:
        yield service


@pytest.fixture(autouse=True)
def fresh(service: PushService) -> None:
    service.received.clear()
    service.answer = Answer()


@pytest.fixture
def vapid(tmp_path: Path) -> VapidSigner:
    return VapidSigner(open_vapid_key(tmp_path / "vapid.pem"), "mailto:hives@bees.example")


@pytest.fixture
async def channel(vapid: VapidSigner) -> AsyncIterator[WebPushChannel]:
    channel = WebPushChannel(vapid)
    yield channel
    await channel.close()


async def test_a_browser_can_read_what_it_is_sent_and_nobody_else(
    channel: WebPushChannel, service: PushService
) -> None:
    browser = Browser()
    outcome = await channel.send(push(f"{service.url}/to/ada", browser.keys))

    assert outcome.status is PushStatus.SENT
    (received,) = service.received
    assert received.path == "/to/ada"
    assert received.headers["content-encoding"] == "aes128gcm"
    assert int(received.headers["ttl"]) > 0
    assert browser.read(received.body) == {
        "title": "The Comb is filling up",
        "body": "It is 82 % full now.",
        "link": "/hives/1",
        "percent": 82.4,
    }
    assert b"Comb" not in received.body
    with pytest.raises(http_ece.ECEException):
        Browser().read(received.body)


async def test_the_service_can_check_who_sends(
    channel: WebPushChannel, service: PushService, vapid: VapidSigner
) -> None:
    await channel.send(push(f"{service.url}/to/ada", Browser().keys))
    scheme, _, parts = service.received[0].headers["authorization"].partition(" ")
    said = dict(part.strip().split("=", 1) for part in parts.split(","))
    point = base64.urlsafe_b64decode(said["k"] + "=")
    key = ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), point)

    claims = jwt.decode(said["t"], key, algorithms=["ES256"], audience=service.url)
    assert scheme == "vapid"
    assert said["k"] == vapid.public
    assert claims["sub"] == "mailto:hives@bees.example"


@pytest.mark.parametrize(
    ("status", "fate"),
    [
        (404, PushStatus.GONE),
        (410, PushStatus.GONE),
        (429, PushStatus.AGAIN),
        (503, PushStatus.AGAIN),
        (400, PushStatus.REFUSED),
        (301, PushStatus.REFUSED),
    ],
)
async def test_what_a_service_answers_decides_the_fate(
    channel: WebPushChannel, service: PushService, status: int, fate: PushStatus
) -> None:
    service.answer = Answer(status, {"Retry-After": "17", "Location": "http://127.0.0.1:1/"})
    outcome = await channel.send(push(service.url, Browser().keys))
    assert outcome.status is fate
    assert outcome.after == (17 if fate is PushStatus.AGAIN else None)


async def test_a_service_that_is_away_is_tried_again(channel: WebPushChannel) -> None:
    with PushService() as gone:
        address = gone.url
    outcome = await channel.send(push(address, Browser().keys))
    assert outcome.status is PushStatus.AGAIN


def test_the_key_is_made_once(tmp_path: Path) -> None:
    first, again = (VapidSigner(open_vapid_key(tmp_path / "vapid.pem"), "") for _ in range(2))
    assert first.public == again.public
    assert (tmp_path / "vapid.pem").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    "address",
    [
        "https://fcm.googleapis.com/fcm/send/abc",
        "https://updates.push.services.mozilla.com/wpush/v2/abc",
        "https://web.push.apple.com/abc",
        "https://db5p.notify.windows.com/w/?token=abc",
    ],
)
def test_the_vendors_services_are_known(address: str) -> None:
    assert check_endpoint(address) == address


@pytest.mark.parametrize(
    "address",
    [
        "http://fcm.googleapis.com/x",
        "https://fcm.googleapis.com.eve.example/x",
        "https://evilfcm.googleapis.com/x",
        "https://fcm.googleapis.com:8443/x",
        "https://ada@fcm.googleapis.com/x",
        "https://169.254.169.254/latest/meta-data",
        "http://127.0.0.1:5432/",
        "file:///etc/passwd",
        "https://[::1",
        "",
    ],
)
def test_addresses_that_would_have_us_call_elsewhere_are_refused(address: str) -> None:
    with pytest.raises(InvalidRequest):
        check_endpoint(address)


def test_a_service_of_this_machine_is_for_development() -> None:
    address = "http://127.0.0.1:9000/push"
    assert check_endpoint(address, local=True) == address
    with pytest.raises(InvalidRequest):
        check_endpoint(address)


@pytest.mark.parametrize("keys", [{}, {"p256dh": "AAAA", "auth": "AAAA"}, {"p256dh": "é"}])
def test_keys_nothing_can_be_encrypted_for_are_refused(keys: dict[str, str]) -> None:
    with pytest.raises(InvalidRequest):
        check_keys(keys)
    assert check_keys(Browser().keys)


@pytest.fixture
async def fcm(service: PushService, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[FcmChannel]:
    """Google's library as it is, and a project of it that lives here."""
    import firebase_admin  # type: ignore[import-untyped]
    from firebase_admin import credentials, messaging
    from google.oauth2.credentials import Credentials

    class Held(credentials.Base):  # type: ignore[misc]
        def get_credential(self) -> Any:
            return Credentials(token="held")  # type: ignore[no-untyped-call]

    monkeypatch.setattr(
        messaging._MessagingService, "FCM_URL", service.url + "/v1/projects/{0}/send"
    )
    app = firebase_admin.initialize_app(
        Held(), {"projectId": "bees", "httpTimeout": 10}, name=uuid.uuid4().hex
    )
    channel = FcmChannel(app)
    yield channel
    await channel.close()


async def test_a_phone_is_sent_what_firebase_expects(fcm: FcmChannel, service: PushService) -> None:
    service.answer = Answer(200, body={"name": "projects/bees/messages/1"})
    outcome = await fcm.send(push("phone-token", {}, "fcm"))

    assert outcome.status is PushStatus.SENT
    (received,) = service.received
    assert received.path == "/v1/projects/bees/send"
    assert received.headers["authorization"] == "Bearer held"
    sent = json.loads(received.body)["message"]
    assert sent["token"] == "phone-token"
    assert sent["notification"]["title"] == "The Comb is filling up"
    assert sent["data"] == {"link": "/hives/1", "percent": "82.4"}
    assert sent["android"]["collapse_key"] == "n42"


def failure(status: int, code: str, fcm_code: str) -> Answer:
    details = [
        {
            "@type": "type.googleapis.com/google.firebase.fcm.v1.FcmError",
            "errorCode": fcm_code,
        }
    ]
    return Answer(status, body={"error": {"status": code, "message": "no", "details": details}})


@pytest.mark.parametrize(
    ("answer", "fate"),
    [
        (failure(404, "NOT_FOUND", "UNREGISTERED"), PushStatus.GONE),
        (failure(403, "PERMISSION_DENIED", "SENDER_ID_MISMATCH"), PushStatus.GONE),
        (failure(429, "RESOURCE_EXHAUSTED", "QUOTA_EXCEEDED"), PushStatus.AGAIN),
        (failure(400, "INVALID_ARGUMENT", "INVALID_ARGUMENT"), PushStatus.REFUSED),
    ],
)
async def test_what_firebase_answers_decides_the_fate(
    fcm: FcmChannel, service: PushService, answer: Answer, fate: PushStatus
) -> None:
    service.answer = answer
    assert (await fcm.send(push("phone-token", {}, "fcm"))).status is fate


def test_an_app_may_register_with_its_installations_id() -> None:
    assert fcm_message(push("an-id", {"by": "fid"}, "fcm")).fid == "an-id"


def test_a_file_that_is_no_service_account_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError):
        open_fcm(tmp_path / "missing.json")


async def test_what_a_push_service_says_beside_its_status_is_not_read(vapid: VapidSigner) -> None:
    class Body(httpx.AsyncByteStream):
        def __aiter__(self) -> AsyncIterator[bytes]:
            raise AssertionError("it was read")

    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(201, stream=Body(), headers={"content-encoding": "gzip"})

    client = httpx.AsyncClient(transport=httpx.MockTransport(answer))
    channel = WebPushChannel(vapid, client)
    outcome = await channel.send(push("https://push.example/ada", Browser().keys))
    assert outcome.status is PushStatus.SENT
    await channel.close()
