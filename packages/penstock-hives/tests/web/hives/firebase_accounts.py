"""Firebase's accounts, and the sign-in pages of Google and Apple, played on loopback.

The pages are at `localhost` and the dashboards at `127.0.0.1`, so they are other sites to each
other: a form from here is sent without the cookies of there.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, Final
from urllib.parse import parse_qs, quote, urlsplit

from penstock_hives.identity.issuer import LocalIssuer, SigningKeys

PROJECT: Final = "bees"
WEB_KEY: Final = "web-key"


@dataclass
class FirebaseAccounts:
    uid: str  #: whoever signs in
    keys: SigningKeys
    port: int = 0
    issuer: str = f"https://securetoken.google.com/{PROJECT}"  #: of the tokens that it gives
    is_cancelled: bool = False  #: whether people turn back at the provider
    asked: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    def environment(self) -> dict[str, str]:
        """What the dashboards are configured with."""
        here = f"http://127.0.0.1:{self.port}"
        given = {"ISSUER": "firebase", "PROJECT": PROJECT, "API_KEY": WEB_KEY}
        urls = {"KEYS": f"{here}/keys", "ACCOUNTS_URL": here, "TOKENS_URL": here}
        return {f"PENSTOCK_HIVES_IDENTITY_{name}": value for name, value in (given | urls).items()}

    def answer(self, method: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        self.asked.append((method, body))
        token = LocalIssuer(self.issuer, PROJECT, self.keys).issue(self.uid).token
        if method == "accounts:createAuthUri":
            back = quote(body["continueUri"], safe="")
            page = f"http://localhost:{self.port}/{body['providerId']}?back={back}"
            return 200, {"authUri": page, "sessionId": "held"}
        if method == "accounts:signInWithIdp":
            if body["sessionId"] != "held" or "code=c0de" not in body["postBody"]:
                return 400, {"error": {"message": "INVALID_IDP_RESPONSE"}}
            return 200, {"idToken": token, "refreshToken": "held", "expiresIn": "3600"}
        if method == "token":
            return 200, {"id_token": token, "refresh_token": "held", "expires_in": "3600"}
        return 400, {"error": {"message": "INVALID_LOGIN_CREDENTIALS"}}

    def page(self, provider: str, back: str) -> tuple[int, str]:
        """A status, and where it leads or what is shown."""
        if self.is_cancelled:
            return 302, f"{back}?error=access_denied&state=s"
        if provider == "google.com":
            return 302, f"{back}?code=c0de&state=s&scope=email"
        fields = {"code": "c0de", "state": "s", "user": '{"name": "Ada"}', "other": "x"}
        inputs = "".join(f"<input name='{n}' value='{v}'>" for n, v in fields.items())
        return 200, (
            f"<form method=post action='{back}'>{inputs}<button>Continue</button></form>"
            "<script>document.forms[0].submit()</script>"
        )


@contextmanager
def firebase_accounts(uid: str, folder: Path) -> Iterator[FirebaseAccounts]:
    keys = SigningKeys(folder / "firebase")
    keys.open()
    played = FirebaseAccounts(uid, keys)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            url = urlsplit(self.path)
            if url.path == "/keys":
                self._send(200, json.dumps(keys.published()), "application/json")
                return
            status, what = played.page(url.path[1:], parse_qs(url.query).get("back", [""])[0])
            self._send(status, what, "text/html")

        def do_POST(self) -> None:
            url = urlsplit(self.path)
            body = self.rfile.read(int(self.headers["content-length"])).decode()
            given = json.loads(body) if body.startswith("{") else parse_qs(body)
            if parse_qs(url.query) != {"key": [WEB_KEY]}:
                self._send(403, "{}", "application/json")
                return
            status, said = played.answer(url.path.removeprefix("/v1/"), given)
            self._send(status, json.dumps(said), "application/json")

        def _send(self, status: int, what: str, kind: str) -> None:
            body = what.encode() if status != 302 else b""
            self.send_response(status)
            if status == 302:
                self.send_header("location", what)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: Any) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        played.port = server.server_address[1]
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield played
        finally:
            server.shutdown()
            thread.join()
