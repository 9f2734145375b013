"""Pushes to phones: Firebase Cloud Messaging, through Google's own library.

The library blocks, so it works in threads. What it raises becomes an outcome: a token that Firebase
no longer knows is gone for good, a quota or an outage passes.
"""

from __future__ import annotations

import asyncio
import uuid
import warnings
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

from penstock.core.errors import ConfigurationError
from penstock_hives.push.models import PushMessage, PushOutcome, PushStatus

if TYPE_CHECKING:
    import firebase_admin  # type: ignore[import-untyped]
    from firebase_admin import messaging

TTL: Final = timedelta(hours=6)
FCM_TIMEOUT: Final = 10


class FcmChannel:
    """Sends as one Firebase project."""

    def __init__(self, app: firebase_admin.App) -> None:
        self._app = app

    async def send(self, push: PushMessage) -> PushOutcome:
        return await asyncio.to_thread(self._send, push)

    async def close(self) -> None:
        import firebase_admin

        # It runs a loop of its own to end what it has open.
        await asyncio.to_thread(firebase_admin.delete_app, self._app)

    def _send(self, push: PushMessage) -> PushOutcome:
        from firebase_admin import exceptions, messaging

        gone = (messaging.UnregisteredError, messaging.SenderIdMismatchError)
        passing = (
            messaging.QuotaExceededError,
            exceptions.UnavailableError,
            exceptions.InternalError,
            exceptions.DeadlineExceededError,
            exceptions.ResourceExhaustedError,
            exceptions.UnknownError,
        )
        try:
            messaging.send(fcm_message(push), app=self._app)
        except gone as error:
            return PushOutcome(PushStatus.GONE, str(error))
        except passing as error:
            return PushOutcome(PushStatus.AGAIN, str(error), _retry_after(error))
        except (exceptions.FirebaseError, ValueError) as error:
            return PushOutcome(PushStatus.REFUSED, str(error))
        return PushOutcome(PushStatus.SENT)


def fcm_message(push: PushMessage) -> messaging.Message:
    """A push as Firebase has it. Sent again it takes the place of the first."""
    from firebase_admin import messaging

    collapse = f"n{push.notification_id}"
    whom = {"fid": push.address} if push.keys.get("by") == "fid" else {"token": push.address}
    with warnings.catch_warnings():
        # Apps that know their installation's id register with that; older ones have a token.
        warnings.simplefilter("ignore", DeprecationWarning)
        return messaging.Message(
            notification=messaging.Notification(title=push.title, body=push.body),
            data={"link": push.link, **{name: str(value) for name, value in push.data.items()}},
            android=messaging.AndroidConfig(collapse_key=collapse, ttl=TTL),
            apns=messaging.APNSConfig(headers={"apns-collapse-id": collapse}),
            **whom,
        )


def open_fcm(service_account: Path) -> FcmChannel:
    """With the credentials of a project's service account."""
    import firebase_admin
    from firebase_admin import credentials

    try:
        credential = credentials.Certificate(str(service_account))
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"{service_account} is no service account: {error}") from error
    # Under a name of its own: the default one would be shared by all of the process.
    app = firebase_admin.initialize_app(
        credential, {"httpTimeout": FCM_TIMEOUT}, name=f"penstock-{uuid.uuid4().hex}"
    )
    return FcmChannel(app)


def _retry_after(error: Exception) -> float | None:
    response = getattr(error, "http_response", None)
    said = response.headers.get("Retry-After", "") if response is not None else ""
    return float(said) if str(said).isdecimal() else None
