"""Settings of pushes, and the channels of an installation."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Self

from penstock.core.config import TextList, data_home
from penstock.core.logs import get_logger
from penstock.core.settings_model import Field, settings_model
from penstock_hives.push.fcm import open_fcm
from penstock_hives.push.models import DAILY_CAP, PushChannel, PushMessage, PushOutcome, PushStatus
from penstock_hives.push.webpush import SERVICES, VapidSigner, WebPushChannel, open_vapid_key
from penstock_hives.settings import read_settings

log = get_logger(__name__)


@settings_model
class PushSettings:
    """From the environment as `PENSTOCK_HIVES_PUSH_SERVICE_ACCOUNT`, or given by name."""

    PREFIX: ClassVar = "PENSTOCK_HIVES_PUSH_"

    service_account: Path | None = None
    """The credentials of a Firebase project; without them pushes to phones are logged only."""
    vapid_key: Path = Field(default_factory=lambda: data_home() / "hives" / "vapid.pem")
    """The VAPID key file; created if it is missing."""
    contact: str = Field(default="mailto:operator@localhost", pattern="(mailto:|https://).*")
    """The contact given to push services."""
    services: TextList = Field(default_factory=lambda: list(SERVICES))
    """Hosts of push services of browsers, with their subdomains."""
    local: bool = False
    """Whether push services on loopback addresses are accepted; never in production."""
    daily_cap: int = Field(default=DAILY_CAP, ge=0)
    """The maximum number of pushes to a user in a local day."""

    @classmethod
    def beside(cls, folder: Path) -> Self:
        """From the environment; the default key file is in this folder."""
        return read_settings(cls, defaults={"vapid_key": folder / "vapid.pem"})


def open_vapid(settings: PushSettings) -> VapidSigner:
    return VapidSigner(open_vapid_key(settings.vapid_key), settings.contact)


def open_channels(settings: PushSettings, *, production: bool) -> dict[str, PushChannel]:
    """Channels by kind of device. In production, pushes without a channel stay pending."""
    channels: dict[str, PushChannel] = {"webpush": WebPushChannel(open_vapid(settings))}
    if settings.service_account is not None:
        channels["fcm"] = open_fcm(settings.service_account)
    elif not production:
        channels["fcm"] = LogChannel()
    return channels


class LogChannel:
    """For development: logs pushes instead of sending them."""

    async def send(self, push: PushMessage) -> PushOutcome:
        log.info("push", channel=push.channel, title=push.title, body=push.body, link=push.link)
        return PushOutcome(PushStatus.SENT)

    async def close(self) -> None: ...
