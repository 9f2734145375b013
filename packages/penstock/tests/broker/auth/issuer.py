"""A token issuer for tests: keys, tokens, and an HTTP server for metadata and sign-in."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlencode

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

RESOURCE = "penstock"
CLIENT = "console"
EVERYTHING = "penstock.configure:*/* penstock.write:*/* penstock.read:*/*"

ADMINISTRATOR = f"{EVERYTHING} penstock.tag:administrator"


@cache
def private_key(algorithm: str, number: int = 0) -> Any:
    if algorithm.startswith(("RS", "PS")):
        return rsa.generate_private_key(65537, 2048)
    if algorithm.startswith("ES"):
        curves = {"ES256": ec.SECP256R1(), "ES384": ec.SECP384R1(), "ES512": ec.SECP521R1()}
        return ec.generate_private_key(curves[algorithm])
    return ed25519.Ed25519PrivateKey.generate()


def public_jwk(key: Any, key_id: str, **more: Any) -> dict[str, Any]:
    public = key.public_key()
    for kind in (RSAAlgorithm, ECAlgorithm, OKPAlgorithm):
        try:
            return {**kind.to_jwk(public, as_dict=True), "kid": key_id, "use": "sig", **more}
        except (TypeError, AttributeError, jwt.InvalidKeyError):
            continue
    raise AssertionError(key)


class Issuer:
    def __init__(self, url: str = "http://127.0.0.1:1/realm") -> None:
        self.url = url
        self.keys: list[dict[str, Any]] = []
        self.fetched: list[str] = []
        self.down = False
        self.secret = ""
        self.codes: dict[str, dict[str, str]] = {}
        self.refresh_tokens: set[str] = set()
        self.refreshed = 0
        self.first_seconds = 60.0  #: the lifetime of a token for a code
        self.rotate("key-1", "ES256")

    def rotate(self, key_id: str, algorithm: str = "ES256", number: int = 0) -> None:
        """Sign with another key, and publish only this one."""
        self.key_id, self.algorithm = key_id, algorithm
        self.key = private_key(algorithm, number)
        self.keys = [public_jwk(self.key, key_id)]

    def claims(self, **more: Any) -> dict[str, Any]:
        claims = {
            "iss": self.url,
            "sub": "ada",
            "aud": [RESOURCE],
            "exp": time.time() + 60,
            "scope": EVERYTHING,
        }
        return {name: value for name, value in {**claims, **more}.items() if value is not None}

    def token(self, **more: Any) -> str:
        header = {"kid": self.key_id}
        return jwt.encode(self.claims(**more), self.key, self.algorithm, headers=header)

    def fetch(self, url: str) -> Any:
        """Instead of HTTP."""
        self.fetched.append(url)
        if self.down:
            raise OSError("connection refused")
        if url == f"{self.url}/.well-known/openid-configuration":
            return {
                "issuer": self.url,
                "jwks_uri": f"{self.url}/keys",
                "authorization_endpoint": f"{self.url}/authorize",
                "token_endpoint": f"{self.url}/token",
            }
        assert url == f"{self.url}/keys", url
        return {"keys": self.keys}

    def allow(self, query: dict[str, str]) -> str:
        """The URL to which a user returns who has signed in and agreed."""
        assert query["response_type"] == "code"
        assert query["code_challenge_method"] == "S256"
        code = f"code-{len(self.codes)}"
        self.codes[code] = query
        return f"{query['redirect_uri']}?" + urlencode({"code": code, "state": query["state"]})

    def exchange(self, form: dict[str, str], authorization: str) -> tuple[int, dict[str, Any]]:
        """A token for a code, once, or for a refresh token."""
        if self.secret:
            pair = base64.b64encode(f"{CLIENT}:{self.secret}".encode()).decode()
            if authorization != f"Basic {pair}":
                return 401, {"error": "invalid_client"}
        if form["grant_type"] == "refresh_token":
            if form["refresh_token"] not in self.refresh_tokens:
                return 400, {"error": "invalid_grant"}
            self.refreshed += 1
            return 200, {"access_token": self.token(scope=ADMINISTRATOR), "expires_in": 60}
        asked = self.codes.pop(form["code"], {})
        digest = hashlib.sha256(form["code_verifier"].encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).decode().rstrip("=")
        expected = {"client_id": CLIENT, "redirect_uri": form["redirect_uri"]}
        expected["code_challenge"] = challenge
        if {key: asked.get(key) for key in expected} != expected or form["client_id"] != CLIENT:
            return 400, {"error": "invalid_grant", "error_description": "the code is not valid"}
        self.refresh_tokens.add("refresh-1")
        token = self.token(scope=ADMINISTRATOR, exp=time.time() + self.first_seconds)
        return 200, {"access_token": token, "refresh_token": "refresh-1", "id_token": "unused"}


@contextmanager
def serve(issuer: Issuer) -> Iterator[str]:
    """The URL of an HTTP server with the issuer's documents."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path, _, query = self.path.partition("?")
            if path == "/realm/authorize":
                back = html.escape(issuer.allow(dict(parse_qsl(query))))
                page = f'<title>Issuer</title><a href="{back}">Sign in as ada</a>'
                self.answer(200, page.encode(), "text/html")
            else:
                found = issuer.fetch(f"http://{self.headers['host']}{self.path}")
                self.answer(200, json.dumps(found).encode())

        def do_POST(self) -> None:
            form = self.rfile.read(int(self.headers["content-length"])).decode()
            authorization = self.headers.get("authorization", "")
            status, found = issuer.exchange(dict(parse_qsl(form)), authorization)
            self.answer(status, json.dumps(found).encode())

        def answer(self, status: int, content: bytes, kind: str = "application/json") -> None:
            self.send_response(status)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    issuer.url = f"http://127.0.0.1:{server.server_address[1]}/realm"
    try:
        yield issuer.url
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
