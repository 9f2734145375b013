"""Settings of payment providers; providers without settings are disabled."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

import httpx

from penstock.core.config import TextList, split_texts
from penstock.core.errors import ConfigurationError
from penstock.core.settings_model import Before, Field, settings_model
from penstock_hives.billing.development import DevelopmentProvider
from penstock_hives.identity.jwks import JwksKeySet, key_set_fetcher
from penstock_hives.identity.tokens import TokenVerifier

if TYPE_CHECKING:
    from penstock_hives.billing.apple import AppleWebhooks
    from penstock_hives.billing.checkout import Checkout
    from penstock_hives.billing.google import GoogleWebhooks
    from penstock_hives.billing.stripe import StripeWebhooks


def _table(value: object) -> object:
    """A table in the environment is JSON."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        raise ValueError("should be a JSON object") from None


@settings_model
class PaymentSettings:
    """From the environment as `PENSTOCK_HIVES_PAYMENTS_STRIPE_SECRETS`, or given by name."""

    PREFIX: ClassVar = "PENSTOCK_HIVES_PAYMENTS_"

    stripe_secrets: TextList = Field(default_factory=list, repr=False)
    """Secrets of Stripe's webhooks (`whsec_…`); several during a rotation."""
    stripe_key: str | None = Field(default=None, repr=False)
    """Stripe's API key (`sk_…`), for checkout and customer portal."""
    stripe_api: str | None = None
    """The address of Stripe's API, for tests."""
    google_package: str | None = None
    """The package name of the app in Google Play."""
    google_audience: str | None = None
    """The URL of our webhook, as configured at the Pub/Sub subscription."""
    google_sender: str | None = None
    """The service account that Pub/Sub sends as."""
    google_key: Path | None = None
    """The key file of the service account that reads purchases."""
    apple_bundle: str | None = None
    """The bundle id of the app."""
    apple_id: int | None = None
    """The id of the app in the App Store; required in production."""
    apple_environment: str = "Production"
    """Production or Sandbox."""
    apple_roots: Annotated[list[Path], Before(split_texts)] = Field(default_factory=list)
    """Apple's root certificates, DER files."""
    plans: Annotated[dict[str, str], Before(_table)] = Field(default_factory=dict)
    """Plans by prices and products of the providers, unless they have the names of plans."""
    test: bool = True
    """Whether the test provider is enabled; never in production."""

    def can_sell(self, *, production: bool) -> bool:
        """Whether a checkout is possible: with Stripe, or with the test provider."""
        return self.stripe_key is not None or (self.test and not production)


@dataclass(frozen=True, slots=True)
class PaymentProviders:
    stripe: StripeWebhooks | None = None
    apple: AppleWebhooks | None = None
    test: DevelopmentProvider | None = None
    google: GoogleWebhooks | None = None
    checkout: Checkout | None = None


def open_providers(settings: PaymentSettings, *, production: bool) -> PaymentProviders:
    """The configured ones; their libraries are loaded only then."""
    return PaymentProviders(
        _stripe(settings),
        _apple(settings, production=production),
        DevelopmentProvider(production=False) if settings.test and not production else None,
        _google(settings),
        _checkout(settings),
    )


def _checkout(settings: PaymentSettings) -> Checkout | None:
    if settings.stripe_key is None:
        return None
    from penstock_hives.billing.checkout import StripeCheckout

    prices = {plan: price for price, plan in settings.plans.items() if price.startswith("price_")}
    return StripeCheckout(settings.stripe_key, prices, settings.stripe_api)


def _google(settings: PaymentSettings) -> GoogleWebhooks | None:
    if settings.google_package is None:
        return None
    from google.oauth2.service_account import Credentials

    from penstock_hives.billing.google import (
        ISSUER,
        KEYS,
        GooglePushVerifier,
        GoogleWebhooks,
        PlayDeveloperApi,
    )

    audience, sender = settings.google_audience, settings.google_sender
    if audience is None or sender is None or settings.google_key is None:
        raise ConfigurationError(
            "PENSTOCK_HIVES_PAYMENTS_GOOGLE_PACKAGE needs GOOGLE_AUDIENCE, GOOGLE_SENDER and "
            "GOOGLE_KEY, too"
        )
    try:
        credentials = Credentials.from_service_account_file(  # type: ignore[no-untyped-call]
            settings.google_key, scopes=[PlayDeveloperApi.SCOPE]
        )
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"{settings.google_key} is no key file: {error}") from error
    keys = JwksKeySet(key_set_fetcher(httpx.AsyncClient(), KEYS))
    verifier = GooglePushVerifier(TokenVerifier(ISSUER, audience, keys), sender)
    purchases = PlayDeveloperApi(credentials)
    return GoogleWebhooks(settings.google_package, verifier, purchases, settings.plans)


def _stripe(settings: PaymentSettings) -> StripeWebhooks | None:
    if not settings.stripe_secrets:
        return None
    from penstock_hives.billing.stripe import StripeWebhooks

    return StripeWebhooks(settings.stripe_secrets, settings.plans)


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
