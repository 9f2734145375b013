"""Settings of payment providers; providers without settings are disabled."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict

from penstock.core.errors import ConfigurationError
from penstock_hives.billing.development import DevelopmentProvider

if TYPE_CHECKING:
    from penstock_hives.billing.apple import AppleWebhooks
    from penstock_hives.billing.stripe import StripeWebhooks


class PaymentSettings(BaseSettings):
    """From the environment as `PENSTOCK_HIVES_PAYMENTS_STRIPE_SECRETS`, or given by name."""

    model_config = SettingsConfigDict(
        env_prefix="PENSTOCK_HIVES_PAYMENTS_",
        extra="ignore",
        frozen=True,
        use_attribute_docstrings=True,
    )

    stripe_secrets: list[SecretStr] = []
    """Secrets of Stripe's webhooks (`whsec_…`); several during a rotation."""
    apple_bundle: str | None = None
    """The bundle id of the app."""
    apple_id: int | None = None
    """The id of the app in the App Store; required in production."""
    apple_environment: str = "Production"
    """Production or Sandbox."""
    apple_roots: list[Path] = []
    """Apple's root certificates, DER files."""
    plans: dict[str, str] = Field(default_factory=dict)
    """Plans by prices and products of the providers, unless they have the names of plans."""
    test: bool = True
    """Whether the test provider is enabled; never in production."""


@dataclass(frozen=True, slots=True)
class PaymentProviders:
    stripe: StripeWebhooks | None = None
    apple: AppleWebhooks | None = None
    test: DevelopmentProvider | None = None


def open_providers(settings: PaymentSettings, *, production: bool) -> PaymentProviders:
    """The configured ones; their libraries are loaded only then."""
    return PaymentProviders(
        _stripe(settings),
        _apple(settings, production=production),
        DevelopmentProvider(production=False) if settings.test and not production else None,
    )


def _stripe(settings: PaymentSettings) -> StripeWebhooks | None:
    if not settings.stripe_secrets:
        return None
    from penstock_hives.billing.stripe import StripeWebhooks

    secrets = [each.get_secret_value() for each in settings.stripe_secrets]
    return StripeWebhooks(secrets, settings.plans)


def _apple(settings: PaymentSettings, *, production: bool) -> AppleWebhooks | None:
    if settings.apple_bundle is None:
        return None
    from penstock_hives.billing.apple import AppleWebhooks, verifier_for

    try:
        roots = [file.read_bytes() for file in settings.apple_roots]
    except OSError as error:
        raise ConfigurationError(f"Apple's root certificates: {error}") from error
    verifier = verifier_for(
        settings.apple_bundle,
        settings.apple_id,
        settings.apple_environment,
        roots,
        production=production,
    )
    return AppleWebhooks(verifier, settings.plans)
