"""A token is believed when the issuer we chose has signed it for us, and it holds now."""

from __future__ import annotations

from typing import Any

import jwt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.errors import AuthenticationFailed
from tests.hives.app.identity import given as a


async def test_an_honest_token_says_whose_it_is() -> None:
    identity = await a.verifier().verify(a.token())

    assert identity.uid == "ada"
    assert identity.claims["aud"] == a.AUDIENCE


async def assert_refused(token: str, reason: str, now: float = a.NOW) -> None:
    with pytest.raises(AuthenticationFailed, match=reason):
        await a.verifier(now=now).verify(token)


async def test_a_forged_token_is_refused() -> None:
    forged = a.token(a.new_key(), name=a.NAME)
    await assert_refused(forged, "signature is wrong")


async def test_a_token_whose_claims_were_changed_is_refused() -> None:
    header, _, signature = a.token().split(".")
    _, claims, _ = a.token(sub="eve").split(".")
    await assert_refused(f"{header}.{claims}.{signature}", "signature is wrong")


async def test_an_expired_token_is_refused() -> None:
    await assert_refused(a.token(), "expired", now=a.NOW + 4000)


async def test_a_token_for_another_audience_is_refused() -> None:
    await assert_refused(a.token(aud="wasps"), "another audience")


async def test_a_token_for_several_audiences_is_refused() -> None:
    await assert_refused(a.token(aud=["bees", "wasps"]), "several audiences")


async def test_a_token_of_another_issuer_is_refused() -> None:
    await assert_refused(a.token(iss="https://securetoken.google.com/wasps"), "another issuer")


@pytest.mark.parametrize("algorithm", ["none", "None", "NONE", ""])
async def test_an_unsigned_token_is_refused(algorithm: str) -> None:
    await assert_refused(
        a.unsigned({"alg": algorithm, "kid": a.NAME}), "RS256|not a JSON web token"
    )


async def test_a_public_key_taken_for_a_secret_is_refused() -> None:
    await assert_refused(a.signed_with_public_key(), "RS256")


async def test_a_key_that_a_token_brings_along_is_not_used() -> None:
    own = a.new_key()
    brought = jwt.algorithms.RSAAlgorithm.to_jwk(own.public_key(), as_dict=True)
    headers = {"kid": "mine", "jwk": brought, "jku": "https://eve.example/keys"}
    token = jwt.encode(a.claims(), own, algorithm="RS256", headers=headers)
    await assert_refused(token, "unknown key")


async def test_a_token_without_a_key_name_is_refused() -> None:
    await assert_refused(jwt.encode(a.claims(), a.KEY, algorithm="RS256"), "no key id")


@pytest.mark.parametrize("claim", ["iat", "auth_time"])
async def test_a_token_from_the_future_is_refused(claim: str) -> None:
    changed: dict[str, Any] = {claim: int(a.NOW) + 60}
    await assert_refused(a.token(**changed), "future")


@pytest.mark.parametrize("claim", ["iss", "aud", "sub", "iat", "exp"])
async def test_a_token_that_leaves_something_out_is_refused(claim: str) -> None:
    changed: dict[str, Any] = {claim: None}
    await assert_refused(a.token(**changed), "invalid token")


@pytest.mark.parametrize("subject", ["", "x" * 129])
async def test_a_subject_has_1_to_128_characters(subject: str) -> None:
    await assert_refused(a.token(sub=subject), "subject")


async def test_clocks_may_differ_a_little() -> None:
    await a.verifier(now=a.NOW + 3545).verify(a.token())


async def test_a_huge_token_is_refused_unread() -> None:
    await assert_refused("x" * 1_000_000, "at most")


@given(st.text())
async def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(AuthenticationFailed):
        await a.verifier().verify(text)
