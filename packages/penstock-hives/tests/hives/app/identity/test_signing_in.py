"""People sign up, in and out with the local issuer, and set a new password when they forgot it."""

from __future__ import annotations

import asyncio
import email
import re
from collections.abc import Callable, Collection
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from argon2 import PasswordHasher

from penstock.core.errors import AuthenticationFailed
from penstock.core.passwords import PasswordVerifier
from penstock_hives.database import DatabasePool
from penstock_hives.errors import InvalidRequest, RequestConflict, TooManyRequests
from penstock_hives.identity.issuer import LocalIssuer, SigningKeys
from penstock_hives.identity.mail import FileMailSender
from penstock_hives.identity.service import SignInService, normalize_login

LOGIN = "ada@bees.example"
ADDRESS = "127.0.0.1"
PASSWORD = "nine green bottles"


class Clock:
    def __init__(self) -> None:
        self.now = datetime(2026, 5, 1, 12, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now

    def seconds(self) -> float:
        return self.now.timestamp()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def issuer(tmp_path: Path, clock: Clock) -> LocalIssuer:
    keys = SigningKeys(tmp_path / "keys")
    keys.open()
    return LocalIssuer("https://bees.local", "bees", keys, clock.seconds)


Desks = Callable[..., SignInService]


@pytest.fixture
def new_desk(pool: DatabasePool, issuer: LocalIssuer, tmp_path: Path, clock: Clock) -> Desks:
    """Each as another process has it."""

    def made(refused: Collection[str] = ()) -> SignInService:
        return SignInService(
            pool,
            issuer,
            PasswordVerifier(PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)),
            FileMailSender(tmp_path / "letters"),
            reset_link="https://bees.example/#/reset/",
            confirm_link="https://bees.example/#/confirm/",
            sender="hives@bees.example",
            refused=refused,
            clock=clock,
        )

    return made


@pytest.fixture
def desk(new_desk: Desks) -> SignInService:
    return new_desk()


def letter(tmp_path: Path) -> tuple[str, str]:
    """To whom the one letter is, and the token in it."""
    (file,) = (tmp_path / "letters").iterdir()
    read = email.message_from_bytes(file.read_bytes())
    found = re.search(r"#/(?:reset|confirm)/(\S+)", str(read.get_payload()))
    assert found is not None
    return str(read["To"]), found[1]


async def test_who_signs_up_can_sign_in(desk: SignInService, issuer: LocalIssuer) -> None:
    first = await desk.sign_up("  Ada@Bees.example ", PASSWORD)
    again = await desk.sign_in(LOGIN, PASSWORD, ADDRESS)

    assert first.uid == again.uid
    for session in (first, again):
        assert (await issuer.verifier().verify(session.id_token)).uid == first.uid


async def test_a_login_is_taken_once(desk: SignInService) -> None:
    await desk.sign_up(LOGIN, PASSWORD)
    with pytest.raises(RequestConflict):
        await desk.sign_up("ADA@bees.example", "another one of mine")


@pytest.mark.parametrize("login", [LOGIN, "nobody@bees.example"])
async def test_a_wrong_password_and_a_wrong_login_read_the_same(
    desk: SignInService, login: str
) -> None:
    await desk.sign_up(LOGIN, PASSWORD)
    with pytest.raises(AuthenticationFailed, match="the login or the password is wrong"):
        await desk.sign_in(login, "nine red bottles", ADDRESS)


@pytest.mark.parametrize("password", ["short", "x" * 300, LOGIN, "aaaaaaaaaaaa"])
async def test_a_password_that_is_guessed_at_once_is_not_taken(
    desk: SignInService, password: str
) -> None:
    with pytest.raises(InvalidRequest):
        await desk.sign_up(LOGIN, password)


@pytest.mark.parametrize("login", ["", "ada", "@", "ada@", "a b@bees.example", "a\n@b.example"])
async def test_a_login_is_an_address(desk: SignInService, login: str) -> None:
    with pytest.raises(InvalidRequest):
        await desk.sign_up(login, PASSWORD)


async def test_after_ten_wrong_passwords_a_login_waits(desk: SignInService, clock: Clock) -> None:
    await desk.sign_up(LOGIN, PASSWORD)
    for _ in range(10):
        with pytest.raises(AuthenticationFailed):
            await desk.sign_in(LOGIN, "wrong", ADDRESS)
    with pytest.raises(TooManyRequests):
        await desk.sign_in(LOGIN, PASSWORD, ADDRESS)
    clock.now += timedelta(minutes=16)
    await desk.sign_in(LOGIN, PASSWORD, ADDRESS)


async def test_wrong_passwords_are_counted_by_all_processes_together(
    new_desk: Desks, pool: DatabasePool, clock: Clock
) -> None:
    desks = [new_desk() for _ in range(4)]
    await desks[0].sign_up(LOGIN, PASSWORD)

    tries = (desk.sign_in(LOGIN, "wrong", ADDRESS) for desk in desks for _ in range(5))
    ends = await asyncio.gather(*tries, return_exceptions=True)

    assert sum(isinstance(end, AuthenticationFailed) for end in ends) == 10
    assert sum(isinstance(end, TooManyRequests) for end in ends) == 10
    with pytest.raises(TooManyRequests) as refusal:
        await new_desk().sign_in(LOGIN, PASSWORD, ADDRESS)
    assert refusal.value.retry_after == 900
    clock.now += timedelta(minutes=16)
    await new_desk().sign_in(LOGIN, PASSWORD, ADDRESS)
    assert await pool.rows("SELECT FROM sign_in_failure") == []


async def test_a_right_password_forgives_the_wrong_ones(desk: SignInService) -> None:
    await desk.sign_up(LOGIN, PASSWORD)
    for _ in range(3):
        for _ in range(9):
            with pytest.raises(AuthenticationFailed):
                await desk.sign_in(LOGIN, "wrong", ADDRESS)
        await desk.sign_in(LOGIN, PASSWORD, ADDRESS)


async def test_who_is_refused_has_neither_password_nor_session(
    desk: SignInService, new_desk: Desks
) -> None:
    session = await desk.sign_up(LOGIN, PASSWORD)
    strict = new_desk({session.uid})
    with pytest.raises(AuthenticationFailed, match="the login or the password is wrong"):
        await strict.sign_in(LOGIN, PASSWORD, ADDRESS)
    for use in (strict.user_of_session, strict.refresh):
        with pytest.raises(AuthenticationFailed, match="invalid or has expired"):
            await use(session.refresh_token)
    assert await desk.user_of_session(session.refresh_token) == session.uid


async def test_a_session_has_no_holder_after_sign_out_or_a_new_password(
    desk: SignInService, tmp_path: Path
) -> None:
    first, second = (
        await desk.sign_up(LOGIN, PASSWORD),
        await desk.sign_in(LOGIN, PASSWORD, ADDRESS),
    )
    await desk.sign_out(first.refresh_token)
    with pytest.raises(AuthenticationFailed):
        await desk.user_of_session(first.refresh_token)
    assert await desk.user_of_session(second.refresh_token) == second.uid
    await desk.request_reset(LOGIN)
    await desk.reset(letter(tmp_path)[1], "ten green bottles")
    with pytest.raises(AuthenticationFailed):
        await desk.user_of_session(second.refresh_token)


async def test_a_refresh_token_gives_another_session_of_the_same_sign_in(
    desk: SignInService, issuer: LocalIssuer, clock: Clock
) -> None:
    signed_in = clock.seconds()
    first = await desk.sign_up(LOGIN, PASSWORD)
    clock.now += timedelta(days=2)
    second = await desk.refresh(first.refresh_token)

    identity = await issuer.verifier().verify(second.id_token)
    assert identity.uid == first.uid
    assert identity.claims["auth_time"] == signed_in


async def test_a_refresh_token_used_twice_ends_every_session(desk: SignInService) -> None:
    first = await desk.sign_up(LOGIN, PASSWORD)
    second = await desk.refresh(first.refresh_token)
    with pytest.raises(AuthenticationFailed, match="used before"):
        await desk.refresh(first.refresh_token)
    with pytest.raises(AuthenticationFailed):
        await desk.refresh(second.refresh_token)


async def test_a_refresh_token_ends_after_a_month(desk: SignInService, clock: Clock) -> None:
    session = await desk.sign_up(LOGIN, PASSWORD)
    clock.now += timedelta(days=31)
    with pytest.raises(AuthenticationFailed, match="invalid or has expired"):
        await desk.refresh(session.refresh_token)


async def test_who_has_signed_out_cannot_refresh(desk: SignInService) -> None:
    session = await desk.sign_up(LOGIN, PASSWORD)
    await desk.sign_out(session.refresh_token)
    with pytest.raises(AuthenticationFailed):
        await desk.refresh(session.refresh_token)


async def test_a_forgotten_password_is_reset_by_letter(desk: SignInService, tmp_path: Path) -> None:
    session = await desk.sign_up(LOGIN, PASSWORD)
    await desk.request_reset(LOGIN)
    to, token = letter(tmp_path)
    assert to == LOGIN

    await desk.reset(token, "ten green bottles")

    await desk.sign_in(LOGIN, "ten green bottles", ADDRESS)
    with pytest.raises(AuthenticationFailed):
        await desk.sign_in(LOGIN, PASSWORD, ADDRESS)
    with pytest.raises(AuthenticationFailed):  # whoever knew the old one is out
        await desk.refresh(session.refresh_token)


async def test_a_letter_works_once(desk: SignInService, tmp_path: Path) -> None:
    await desk.sign_up(LOGIN, PASSWORD)
    await desk.request_reset(LOGIN)
    _, token = letter(tmp_path)
    await desk.reset(token, "ten green bottles")
    with pytest.raises(AuthenticationFailed, match="request another"):
        await desk.reset(token, "eleven green bottles")


async def test_a_letter_works_for_an_hour(
    desk: SignInService, tmp_path: Path, clock: Clock
) -> None:
    await desk.sign_up(LOGIN, PASSWORD)
    await desk.request_reset(LOGIN)
    _, token = letter(tmp_path)
    clock.now += timedelta(minutes=61)
    with pytest.raises(AuthenticationFailed, match="request another"):
        await desk.reset(token, "ten green bottles")


async def test_nobody_gets_a_letter_for_a_login_that_is_not_there(
    desk: SignInService, tmp_path: Path
) -> None:
    await desk.request_reset("nobody@bees.example")
    assert not (tmp_path / "letters").exists()


async def test_sessions_that_are_over_are_forgotten(
    desk: SignInService, pool: DatabasePool, clock: Clock
) -> None:
    await desk.sign_up(LOGIN, PASSWORD)
    clock.now += timedelta(days=31)
    await desk.sign_in(LOGIN, PASSWORD, ADDRESS)
    assert len(await pool.rows("SELECT FROM refresh_token")) == 1


@pytest.mark.parametrize(
    "login",
    [
        "a@x,b@y",
        "a@x;b@y",
        "a@x@y",
        "a,b@y",
        "<a@x>",
        "group:a@x",
        "a(b)@x",
        '"a"@x',
        "a@[127.0.0.1]",
        "a@",
        "@x",
        "ada",
        "a b@x",
        "a@x\nb@y",
    ],
)
def test_a_login_is_one_address(login: str) -> None:
    with pytest.raises(InvalidRequest):
        normalize_login(login)


def test_a_login_is_kept_in_small_letters() -> None:
    assert normalize_login(" Ada.O'Neil+bees@Bees.Example ") == "ada.o'neil+bees@bees.example"


async def test_a_new_password_ends_all_other_sessions(desk: SignInService) -> None:
    first = await desk.sign_up(LOGIN, PASSWORD)
    with pytest.raises(InvalidRequest):
        await desk.change_password(first.uid, "nine red bottles", "ten green bottles", ADDRESS)
    with pytest.raises(InvalidRequest):
        await desk.change_password(first.uid, PASSWORD, "short", ADDRESS)

    session = await desk.change_password(first.uid, PASSWORD, "ten green bottles", ADDRESS)

    with pytest.raises(AuthenticationFailed):
        await desk.refresh(first.refresh_token)
    await desk.sign_in(LOGIN, "ten green bottles", ADDRESS)
    assert session.uid == first.uid


async def test_a_new_address_is_valid_when_it_is_confirmed_and_the_old_one_is_told(
    desk: SignInService, tmp_path: Path
) -> None:
    uid = (await desk.sign_up(LOGIN, PASSWORD)).uid
    await desk.request_login(uid, "Countess@bees.example", PASSWORD, ADDRESS)
    to, token = letter(tmp_path)
    assert (to, await desk.login(uid)) == ("countess@bees.example", LOGIN)

    await desk.confirm_login(token)

    assert await desk.login(uid) == "countess@bees.example"
    await desk.sign_in("countess@bees.example", PASSWORD, ADDRESS)
    told = [each.read_text() for each in (tmp_path / "letters").iterdir()]
    assert sum(f"To: {LOGIN}" in each for each in told) == 1
    with pytest.raises(AuthenticationFailed):
        await desk.confirm_login(token)


async def test_an_address_that_somebody_else_has_gets_no_link(
    desk: SignInService, tmp_path: Path, clock: Clock
) -> None:
    uid = (await desk.sign_up(LOGIN, PASSWORD)).uid
    await desk.sign_up("grace@bees.example", PASSWORD)
    await desk.request_login(uid, "grace@bees.example", PASSWORD, ADDRESS)
    assert not (tmp_path / "letters").exists()

    await desk.request_login(uid, "new@bees.example", PASSWORD, ADDRESS)
    await desk.sign_up("new@bees.example", PASSWORD)  # before the link is opened
    with pytest.raises(AuthenticationFailed):
        await desk.confirm_login(letter(tmp_path)[1])
    assert await desk.login(uid) == LOGIN


async def test_a_link_is_sent_once_a_minute_at_most(
    desk: SignInService, tmp_path: Path, clock: Clock
) -> None:
    uid = (await desk.sign_up(LOGIN, PASSWORD)).uid
    for _ in range(3):
        await desk.request_reset(LOGIN)
    assert letter(tmp_path)[0] == LOGIN  # one letter
    await desk.request_login(uid, "new@bees.example", PASSWORD, ADDRESS)
    with pytest.raises(TooManyRequests):
        await desk.request_login(uid, "newer@bees.example", PASSWORD, ADDRESS)
    clock.now += timedelta(minutes=1)
    await desk.request_reset(LOGIN)
    await desk.request_login(uid, "newer@bees.example", PASSWORD, ADDRESS)
    assert len(list((tmp_path / "letters").iterdir())) == 4
