"""Pushes to phones: Firebase Cloud Messaging, through Google's library, in threads."""

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
    def __init__(self, app: firebase_admin.App) -> None:
        self._app = app

    async def send(self, push: PushMessage) -> PushOutcome:
        return await asyncio.to_thread(self._send, push)

    async def close(self) -> None:
        import firebase_admin

        # It blocks: it runs its own event loop.
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
    """A repeated push replaces the first (collapse key)."""
    from firebase_admin import messaging

    collapse = f"n{push.notification_id}"
    whom = {"fid": push.address} if push.keys.get("by") == "fid" else {"token": push.address}
    with warnings.catch_warnings():
        # New apps register an installation id; older ones a token.
        warnings.simplefilter("ignore", DeprecationWarning)
        return messaging.Message(
            notification=messaging.Notification(title=push.title, body=push.body),
            data={"link": push.link, **{name: str(value) for name, value in push.data.items()}},
            android=messaging.AndroidConfig(collapse_key=collapse, ttl=TTL),
            apns=messaging.APNSConfig(headers={"apns-collapse-id": collapse}),
            **whom,
        )


def open_fcm(service_account: Path) -> FcmChannel:
    """With the credentials of a service account."""
    import firebase_admin
    from firebase_admin import credentials

    try:
        credential = credentials.Certificate(str(service_account))
    except (OSError, ValueError) as error:
        raise ConfigurationError(
            f"{service_account} is not a service account file: {error}"
        ) from error
    # Not the default app, which the whole process would share.
    app = firebase_admin.initialize_app(
        credential, {"httpTimeout": FCM_TIMEOUT}, name=f"penstock-{uuid.uuid4().hex}"
    )
    return FcmChannel(app)


def _retry_after(error: Exception) -> float | None:
    response = getattr(error, "http_response", None)
    after = response.headers.get("Retry-After", "") if response is not None else ""
    return float(after) if str(after).isdecimal() else None
