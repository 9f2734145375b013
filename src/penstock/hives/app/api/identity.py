"""Signing in with the local issuer. Where Firebase is the issuer these say so, and do nothing."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, BackgroundTasks, Depends
from pydantic import Field

from penstock.hives.app.api.caller import Reader
from penstock.hives.app.api.context import Context
from penstock.hives.app.api.fields import Body
from penstock.hives.app.api.problems import Problem
from penstock.hives.app.identity.local import Session, SignIn, spelled
from penstock.hives.app.identity.opening import Local, local

# Not idempotent routes: their answers are secrets, which are not kept.
router = APIRouter(
    tags=["identity"],
    responses={501: {"description": "This installation has no such part.", "model": Problem}},
)

Login = Annotated[str, Field(min_length=3, max_length=254, examples=["ada@bees.example"])]
Password = Annotated[str, Field(min_length=1, max_length=256, examples=["nine green bottles"])]
Token = Annotated[str, Field(min_length=1, max_length=200, pattern="^[A-Za-z0-9_-]+$")]


class Credentials(Body):
    login: Login
    password: Password


class Refresh(Body):
    refresh_token: Token


class Forgotten(Body):
    login: Login


class Reset(Body):
    token: Token
    """From the letter."""
    password: Password


class Issuer(Body):
    issuer: Literal["local", "other"]
    """Whether people sign in here."""


def desk(context: Context) -> SignIn:
    return local(context.identify).sign_in(context.pool)


Desk = Annotated[SignIn, Depends(desk)]


@router.get("/identity")
async def get_issuer(caller: Reader, context: Context) -> Issuer:
    """Whether people sign in here, or with Firebase."""
    return Issuer(issuer="local" if isinstance(context.identify, Local) else "other")


@router.get("/identity/keys")
async def get_keys(caller: Reader, context: Context) -> dict[str, Any]:
    """The public keys of the local issuer, as a JWK set."""
    return local(context.identify).issuer.keys.published()


@router.post("/identity/sign-up", status_code=201)
async def sign_up(body: Credentials, caller: Reader, desk: Desk) -> Session:
    return await desk.sign_up(body.login, body.password)


@router.post("/identity/sign-in")
async def sign_in(body: Credentials, caller: Reader, desk: Desk) -> Session:
    """An ID token for an hour, and a refresh token that is good once."""
    return await desk.sign_in(body.login, body.password)


@router.post("/identity/refresh")
async def refresh(body: Refresh, caller: Reader, desk: Desk) -> Session:
    """Another session. A refresh token that is used twice ends all sessions of its owner."""
    return await desk.refresh(body.refresh_token)


@router.post("/identity/sign-out", status_code=204)
async def sign_out(body: Refresh, caller: Reader, desk: Desk) -> None:
    await desk.sign_out(body.refresh_token)


@router.post("/identity/password/forgotten", status_code=202)
async def forgotten(body: Forgotten, caller: Reader, desk: Desk, later: BackgroundTasks) -> None:
    """A letter with the means to set a new password. The answer is the same, and as quick, for a
    login that is not there."""
    later.add_task(desk.ask_reset, spelled(body.login))


@router.post("/identity/password/reset", status_code=204)
async def reset(body: Reset, caller: Reader, desk: Desk) -> None:
    """Set a new password; every session of the old one ends."""
    await desk.reset(body.token, body.password)
