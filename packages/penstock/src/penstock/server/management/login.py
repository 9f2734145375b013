"""`/api/auth`: how a user of the console signs in at a token issuer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock.core.errors import NotFound
from penstock.server.management.api_call import (
    AccessLevel,
    ApiCall,
    ApiRoute,
    required_fields,
    text_field,
)
from penstock.server.management.http import HttpResponse, json_response

if TYPE_CHECKING:
    from penstock.broker.auth.authorization_code import AuthorizationCodeClient

#: Of a request: a code, a verifier and two URLs.
_MAX_BYTES: Final = 64 * 1024
_NOT_STORED: Final = {"cache-control": "no-store"}

#: What RabbitMQ 3.10 says of the one issuer that it knows.
_NO_UAA: Final = {"enable_uaa": False, "uaa_client_id": "", "uaa_location": ""}


async def auth(call: ApiCall) -> HttpResponse:
    """Whether tokens are accepted, whose, and the client id of the console."""
    settings = call.broker.settings
    if "oauth2" not in settings.auth_backends:
        return json_response({"oauth_enabled": False, **_NO_UAA})
    return json_response(
        {
            "oauth_enabled": True,
            **_NO_UAA,
            "oauth_provider_url": settings.oauth2.issuer,
            "oauth_resource_id": settings.oauth2.resource_server_id,
            "oauth_client_id": settings.oauth2.client_id,
            "oauth_scopes": " ".join(settings.oauth2.scopes),
        }
    )


async def provider(call: ApiCall) -> HttpResponse:
    """The sign-in address of the token issuer."""
    return json_response({"authorization_endpoint": await _client(call).authorization_endpoint()})


async def token(call: ApiCall) -> HttpResponse:
    """Exchange an authorization code and its verifier, or a refresh token, for an access token."""
    body = await call.body(_MAX_BYTES)
    client = _client(call)
    if "refresh_token" in body:
        found = await client.refresh(text_field(body, "refresh_token"))
    else:
        names = ("code", "code_verifier", "redirect_uri")
        list(required_fields(body, *names))
        found = await client.exchange_code(*(text_field(body, name) for name in names))
    response = json_response(found)
    return HttpResponse(response.status, response.body, {**response.headers, **_NOT_STORED})


def _client(call: ApiCall) -> AuthorizationCodeClient:
    if call.login is None:
        raise NotFound("sign-in at an issuer is not configured: set broker.oauth2.client_id")
    return call.login


routes: Final = (
    ApiRoute("GET", "/api/auth", auth, AccessLevel.ANYONE),
    ApiRoute("GET", "/api/auth/provider", provider, AccessLevel.ANYONE),
    ApiRoute("POST", "/api/auth/token", token, AccessLevel.ANYONE),
)
