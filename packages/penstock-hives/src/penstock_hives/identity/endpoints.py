"""Sign-in with the local issuer; 501 where Firebase is the issuer."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, BackgroundTasks, Depends, Request
from pydantic import Field

from penstock_hives.api.dependencies import Reader, ResourcesDep, SignedIn, client_address
from penstock_hives.api.fields import RequestBody
from penstock_hives.identity.service import (
    LocalIdentity,
    SignInService,
    SignInSession,
    normalize_login,
    require_local_identity,
)
from penstock_store.http.problems import Problem

# Not idempotent routes: their responses are secrets and must not be stored.
router = APIRouter(
    tags=["identity"],
    responses={501: {"description": "Not configured in this installation.", "model": Problem}},
)

Login = Annotated[str, Field(min_length=3, max_length=254, examples=["ada@bees.example"])]
Password = Annotated[str, Field(min_length=1, max_length=256, examples=["nine green bottles"])]
Token = Annotated[str, Field(min_length=1, max_length=200, pattern="^[A-Za-z0-9_-]+$")]


class LoginRequest(RequestBody):
    login: Login
    password: Password


class RefreshRequest(RequestBody):
    refresh_token: Token


class PasswordResetRequest(RequestBody):
    login: Login


class PasswordReset(RequestBody):
    token: Token
    """From the mail."""
    password: Password


class PasswordChange(RequestBody):
    password: Password
    new_password: Password


class LoginChange(RequestBody):
    login: Login
    """The new address."""
    password: Password


class LoginConfirmation(RequestBody):
    token: Token
    """From the mail."""


class LoginInfo(RequestBody):
    login: str


class IssuerInfo(RequestBody):
    issuer: Literal["local", "other"]
    """local: users sign in here."""


def get_sign_in(context: ResourcesDep) -> SignInService:
    return require_local_identity(context.identify).sign_in(context.pool)


SignInDep = Annotated[SignInService, Depends(get_sign_in)]


@router.get("/identity")
async def get_issuer(caller: Reader, context: ResourcesDep) -> IssuerInfo:
    """Whether users sign in here or with Firebase."""
    return IssuerInfo(issuer="local" if isinstance(context.identify, LocalIdentity) else "other")


@router.get("/identity/keys")
async def get_keys(caller: Reader, context: ResourcesDep) -> dict[str, Any]:
    """The public keys of the local issuer, as a JWK set."""
    return require_local_identity(context.identify).issuer.keys.published()


@router.post("/identity/sign-up", status_code=201)
async def sign_up(
    body: LoginRequest, caller: Reader, service: SignInDep, context: ResourcesDep, request: Request
) -> SignInSession:
    """Create a user with an e-mail address and a password, and sign in."""
    context.limits.take_account(client_address(request))
    return await service.sign_up(body.login, body.password)


@router.post("/identity/sign-in")
async def sign_in(
    body: LoginRequest, caller: Reader, service: SignInDep, request: Request
) -> SignInSession:
    """An ID token for an hour, and a refresh token that can be used once."""
    return await service.sign_in(body.login, body.password, client_address(request))


@router.post("/identity/refresh")
async def refresh(body: RefreshRequest, caller: Reader, service: SignInDep) -> SignInSession:
    """A new session. A refresh token that is used twice ends all sessions of its user."""
    return await service.refresh(body.refresh_token)


@router.post("/identity/sign-out", status_code=204)
async def sign_out(body: RefreshRequest, caller: Reader, service: SignInDep) -> None:
    """End the session of a refresh token."""
    await service.sign_out(body.refresh_token)


@router.post("/identity/password/forgotten", status_code=202)
async def forgotten(
    body: PasswordResetRequest,
    caller: Reader,
    service: SignInDep,
    context: ResourcesDep,
    request: Request,
    later: BackgroundTasks,
) -> None:
    """Send a mail with a link to set a new password. The response does not reveal whether the login
    exists."""
    context.limits.take_account(client_address(request))
    later.add_task(service.request_reset, normalize_login(body.login))


@router.post("/identity/password/reset", status_code=204)
async def reset(body: PasswordReset, caller: Reader, service: SignInDep) -> None:
    """Set a new password and end all sessions."""
    await service.reset(body.token, body.password)


@router.put("/identity/password")
async def change_password(
    body: PasswordChange, caller: SignedIn, service: SignInDep, request: Request
) -> SignInSession:
    """Set a new password and end all other sessions."""
    address = client_address(request)
    return await service.change_password(
        caller.uid or "", body.password, body.new_password, address
    )


@router.get("/identity/login")
async def get_login(caller: SignedIn, service: SignInDep) -> LoginInfo:
    """The e-mail address you sign in with."""
    return LoginInfo(login=await service.login(caller.uid or ""))


@router.put("/identity/login", status_code=202)
async def change_login(
    body: LoginChange, caller: SignedIn, service: SignInDep, request: Request
) -> None:
    """Send a mail to the new address, with a link that confirms it."""
    address = client_address(request)
    await service.request_login(caller.uid or "", body.login, body.password, address)


@router.post("/identity/login/confirm", status_code=204)
async def confirm_login(body: LoginConfirmation, caller: Reader, service: SignInDep) -> None:
    """Sign in with the new address from now on; the old address receives a notice."""
    await service.confirm_login(body.token)
