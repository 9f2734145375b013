"""Settings of the token issuer, and their checks for production."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Literal

from penstock.core.config import data_home, split_texts
from penstock.core.errors import ConfigurationError
from penstock.core.settings_model import Before, Field, settings_model

#: Where Firebase publishes the keys its ID tokens are signed with.
FIREBASE_KEYS: Final = (
    "https://www.googleapis.com/service_accounts/v1/jwk/securetoken@system.gserviceaccount.com"
)
#: Environment variables that make Firebase's libraries accept unsigned tokens.
UNSIGNED_MODES: Final = ("FIREBASE_AUTH_EMULATOR_HOST",)


SignInProviders = Annotated[list[Literal["google.com", "apple.com"]], Before(split_texts)]


@settings_model
class IdentitySettings:
    """From the environment as `PENSTOCK_HIVES_IDENTITY_ISSUER`, or given by name."""

    PREFIX: ClassVar = "PENSTOCK_HIVES_IDENTITY_"

    issuer: Literal["local", "firebase"] = "local"
    """The issuer of tokens: local or firebase."""
    project: str = Field(default="penstock", pattern=r"^[a-z][a-z0-9-]{2,62}$")
    """The Firebase project, the audience of its tokens; any name for the local issuer."""
    keys: str = FIREBASE_KEYS
    """The URL of Firebase's public keys."""
    api_key: str | None = Field(default=None, pattern=r"^[\w-]+$")
    """The Web API key of the Firebase project; with it people sign in on the public page and the
    dashboards."""
    providers: SignInProviders = Field(default_factory=lambda: ["google.com", "apple.com"])
    """Other accounts that people may sign in with, on the public page and the dashboards."""
    accounts_url: str = "https://identitytoolkit.googleapis.com"
    """Firebase's service for accounts."""
    tokens_url: str = "https://securetoken.googleapis.com"
    """Firebase's service that renews tokens."""
    folder: Path = Field(default_factory=lambda: data_home() / "hives" / "identity")
    """The folder of the local issuer's keys and, for development, of its mail."""
    mail: str | None = None
    """The mail server for password resets: smtp://user:password@host:587 (STARTTLS) or smtps://…"""
    mail_authority: Path | None = None
    """Certificate authorities for the mail server, instead of the system's."""
    mail_cleartext: bool = False
    """Whether a remote mail server without STARTTLS is allowed."""
    sender: str = "no-reply@localhost"
    """The sender of mail."""
    reset_link: str = "http://127.0.0.1:8000/#/reset/"
    """The URL to set a new password; the token is appended."""
    confirm_link: str = "http://127.0.0.1:8000/#/confirm/"
    """The URL to confirm a new e-mail address; the token is appended."""

    @property
    def issuer_name(self) -> str:
        if self.issuer == "firebase":
            return f"https://securetoken.google.com/{self.project}"
        return f"https://{self.project}.local"

    def check(self) -> None:
        for name in ("keys", "accounts_url", "tokens_url"):
            if not _private(getattr(self, name)):
                raise ValueError(f"{name} must be an https URL")

    def of_page(self) -> dict[str, Any]:
        """What the public page needs to sign people in with Firebase; nothing in it is secret."""
        if self.issuer != "firebase" or self.api_key is None:
            return {}
        urls = [self.accounts_url, self.tokens_url]
        return {"key": self.api_key, "providers": list(self.providers), "urls": urls}


def _private(url: str) -> bool:
    return url.startswith(("https://", "http://127.0.0.1:", "http://localhost:"))


def check_identity_settings(
    settings: IdentitySettings, production: bool, environment: Mapping[str, str]
) -> None:
    """Raises `ConfigurationError` for insecure settings in production."""
    if not production:
        return
    for name in UNSIGNED_MODES:
        if environment.get(name):
            raise ConfigurationError(
                f"{name} is set, which disables token signatures: unset it in production"
            )
    if settings.issuer == "local" and settings.mail is None:
        raise ConfigurationError(
            "the local issuer needs PENSTOCK_HIVES_IDENTITY_MAIL in production"
        )
    for name in ("reset_link", "confirm_link"):
        link = getattr(settings, name)
        if settings.issuer == "local" and not _private(link):
            raise ConfigurationError(
                f"PENSTOCK_HIVES_IDENTITY_{name.upper()} is {link!r}: in production it "
                "must be an https URL"
            )
    if settings.issuer == "firebase" and not settings.keys.startswith("https://"):
        raise ConfigurationError("PENSTOCK_HIVES_IDENTITY_KEYS must be an https URL in production")
