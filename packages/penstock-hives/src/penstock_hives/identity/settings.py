"""Who vouches for people in this installation, and what must not be so in production."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal

from pydantic import Field, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from penstock.core.config import data_home
from penstock.core.errors import ConfigurationError
from penstock_hives.identity.jwks import FIREBASE_KEYS

#: With these set, Firebase's libraries take tokens that nobody has signed.
UNSIGNED_MODES: Final = ("FIREBASE_AUTH_EMULATOR_HOST",)


class IdentitySettings(BaseSettings):
    """From the environment as `PENSTOCK_HIVES_IDENTITY_ISSUER`, or given by name."""

    model_config = SettingsConfigDict(
        env_prefix="PENSTOCK_HIVES_IDENTITY_",
        extra="ignore",
        frozen=True,
        use_attribute_docstrings=True,
    )

    issuer: Literal["local", "firebase"] = "local"
    """Whose tokens are believed: our own issuer's, or Firebase's."""
    project: str = Field(default="penstock", pattern=r"^[a-z][a-z0-9-]{2,62}$")
    """The Firebase project, which is the audience of its tokens; any name for the local issuer."""
    keys: str = FIREBASE_KEYS
    """Where Firebase's public keys are."""
    folder: Path = Field(default_factory=lambda: data_home() / "hives" / "identity")
    """Where the local issuer has its keys, and on a machine for development its letters."""
    mail: str | None = None
    """The server that carries letters about passwords, smtp://user:password@host:587 (STARTTLS), or
    smtps://…"""
    mail_authority: Path | None = None
    """Certificates that server is verified with, in place of the system's."""
    mail_cleartext: bool = False
    """Whether letters go to a server on another machine that does not offer STARTTLS."""
    sender: str = "no-reply@localhost"
    """Whom those letters are from."""
    reset_link: str = "http://127.0.0.1:8000/#reset="
    """Where a new password is set; the token follows."""

    @property
    def issuer_name(self) -> str:
        if self.issuer == "firebase":
            return f"https://securetoken.google.com/{self.project}"
        return f"https://{self.project}.local"

    @model_validator(mode="after")
    def _encrypted(self) -> IdentitySettings:
        if not _private(self.keys):
            raise ValueError("keys that are not fetched over https are anybody's")
        return self


def _private(url: str) -> bool:
    """Whether nobody between reads what goes there."""
    return url.startswith(("https://", "http://127.0.0.1:", "http://localhost:"))


def check_identity_settings(
    settings: IdentitySettings, production: bool, environment: Mapping[str, str]
) -> None:
    """Refuses to start in production with anything that would believe a stranger."""
    if not production:
        return
    for name in UNSIGNED_MODES:
        if environment.get(name):
            raise ConfigurationError(
                f"{name} is set: with it, tokens need no signature. Unset it, or this is not "
                "production"
            )
    if settings.issuer == "local" and settings.mail is None:
        raise ConfigurationError(
            "the local issuer needs PENSTOCK_HIVES_IDENTITY_MAIL in production: letters about "
            "passwords would be files here"
        )
    if settings.issuer == "local" and not _private(settings.reset_link):
        raise ConfigurationError(
            f"PENSTOCK_HIVES_IDENTITY_RESET_LINK is {settings.reset_link!r}: in production, new "
            "passwords are set over https"
        )
    if settings.issuer == "firebase" and not settings.keys.startswith("https://"):
        raise ConfigurationError("Firebase's keys are fetched over https in production")
