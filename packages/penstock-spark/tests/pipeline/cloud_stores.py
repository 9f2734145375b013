"""Azure's and Google's object stores, as much of their HTTP interfaces as delta-rs uses, in memory.

Both create an object only if it does not exist, each in its own way. Signatures are not checked.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from email.utils import formatdate, parsedate_to_datetime
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing.connection import Connection
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

from penstock_spark.lake.storage import StorageLocation
from tests.pipeline.server_process import server_process

CONTAINER = "lake"
#: So few names in an answer that lists have several pages.
PAGE = 20


@dataclass
class Blob:
    content: bytes
    tag: str = field(init=False)
    modified: str = field(default_factory=lambda: formatdate(usegmt=True))

    def __post_init__(self) -> None:
        self.tag = f'"{hashlib.sha256(self.content).hexdigest()[:16]}"'


class CloudHandler(BaseHTTPRequestHandler):
    """What both have in common: objects by name, ranges, and creating one that does not exist."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    #: Set by `_serve`.
    blobs: dict[str, Blob]
    parts: dict[tuple[str, str], bytes]
    lock: threading.Lock
    #: Says that the object exists, in answer to a request to create it.
    exists: HTTPStatus

    def _handle(self) -> None:
        self.body = self.rfile.read(int(self.headers.get("content-length") or 0))
        url = urlsplit(self.path)
        self.query = {
            name: values[0] for name, values in parse_qs(url.query, keep_blank_values=True).items()
        }
        container, _, self.name = unquote(url.path).removeprefix("/").partition("/")
        if container != CONTAINER:
            self.answer(HTTPStatus.NOT_FOUND)
            return
        with self.lock, suppress(ConnectionError):  # of a client that has read enough
            self.respond()

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _handle

    @abstractmethod
    def respond(self) -> None: ...

    def answer(
        self, status: HTTPStatus, content: bytes = b"", headers: dict[str, str] | None = None
    ) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(content)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def get(self) -> None:
        blob = self.blobs.get(self.name)
        if blob is None:
            self.answer(HTTPStatus.NOT_FOUND)
            return
        size, status = len(blob.content), HTTPStatus.OK
        first, last = 0, size - 1
        headers = {"ETag": blob.tag, "Last-Modified": blob.modified}
        if wanted := re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("range") or ""):
            first, last = int(wanted[1]), min(int(wanted[2] or last), last)
            if first >= size:
                self.answer(HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE)
                return
            status = HTTPStatus.PARTIAL_CONTENT
            headers["Content-Range"] = f"bytes {first}-{last}/{size}"
        content = blob.content[first : last + 1]
        self.answer(status, content, headers | {"Content-Length": str(len(content))})

    def put(self, content: bytes, new: bool = False) -> None:
        if new and self.name in self.blobs:
            self.answer(self.exists, b"<Error><Code>Exists</Code></Error>")
            return
        blob = self.blobs[self.name] = Blob(content)
        self.answer(HTTPStatus.CREATED, b"", {"ETag": blob.tag, "Last-Modified": blob.modified})

    def delete(self) -> None:
        found = self.blobs.pop(self.name, None)
        self.answer(HTTPStatus.NOT_FOUND if found is None else self.deleted)

    deleted = HTTPStatus.ACCEPTED

    def page(self, after: str, start: str = "") -> tuple[list[str], list[str], str]:
        """Names and folders after a name, or beginning with one, and the one to go on after."""
        prefix, delimiter = self.query.get("prefix", ""), self.query.get("delimiter", "")
        names: list[str] = []
        folders: list[str] = []
        last = ""
        for name in sorted(self.blobs):
            rest = name.removeprefix(prefix)
            if not name.startswith(prefix) or name <= after or name < start:
                continue
            if len(names) + len(folders) == PAGE:
                return names, folders, last
            last = name
            if delimiter and delimiter in rest:
                folder = prefix + rest.partition(delimiter)[0] + delimiter
                if folder not in folders:
                    folders.append(folder)
            else:
                names.append(name)
        return names, folders, ""

    def log_message(self, *args: object) -> None:
        pass


class AzureHandler(CloudHandler):
    exists = HTTPStatus.CONFLICT

    def respond(self) -> None:
        match self.command, self.query.get("comp"):
            case "GET", "list":
                self._list()
            case "GET" | "HEAD", _:
                self.get()
            case "PUT", "block":
                self.parts[self.name, self.query["blockid"]] = self.body
                self.answer(HTTPStatus.CREATED)
            case "PUT", "blocklist":
                blocks = re.findall(r"<Uncommitted>(.+?)</Uncommitted>", self.body.decode())
                self.put(b"".join(self.parts.pop((self.name, each)) for each in blocks))
            case "PUT", _:
                assert self.headers["x-ms-blob-type"] == "BlockBlob"
                self.put(self.body, self.headers.get("if-none-match") == "*")
            case "POST", "batch":
                self._delete_batch()
            case "DELETE", _:
                self.delete()

    def _list(self) -> None:
        known = {"restype", "comp", "prefix", "delimiter", "marker", "startFrom"}
        assert not self.query.keys() - known, self.query
        names, folders, last = self.page(
            self.query.get("marker", ""), self.query.get("startFrom", "")
        )
        found = [
            f"<Blob><Name>{escape(name)}</Name><Properties>"
            f"<Last-Modified>{blob.modified}</Last-Modified><Etag>{escape(blob.tag)}</Etag>"
            f"<Content-Length>{len(blob.content)}</Content-Length>"
            "<Content-Type>application/octet-stream</Content-Type></Properties></Blob>"
            for name in names
            for blob in (self.blobs[name],)
        ]
        found += [f"<BlobPrefix><Name>{escape(each)}</Name></BlobPrefix>" for each in folders]
        text = (
            f"<EnumerationResults><Blobs>{''.join(found)}</Blobs>"
            f"<NextMarker>{escape(last)}</NextMarker></EnumerationResults>"
        )
        self.answer(HTTPStatus.OK, text.encode())

    def _delete_batch(self) -> None:
        """Requests in parts of a request, each answered in a part."""
        parts = re.findall(rb"Content-ID: (\d+)\r\n.*?DELETE /(\S+) HTTP", self.body, re.S)
        answers = []
        for number, url in parts:
            name = unquote(urlsplit(url.decode()).path).partition("/")[2]
            gone = self.blobs.pop(name, None) is None
            status = "404 The specified blob does not exist." if gone else "202 Accepted"
            head = f"--x\r\nContent-Type: application/http\r\nContent-ID: {number.decode()}\r\n\r\n"
            answers.append(f"{head}HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n")
        content = ("".join(answers) + "--x--\r\n").encode()
        self.answer(HTTPStatus.ACCEPTED, content, {"Content-Type": "multipart/mixed; boundary=x"})


class GoogleHandler(CloudHandler):
    exists = HTTPStatus.PRECONDITION_FAILED
    deleted = HTTPStatus.NO_CONTENT

    def respond(self) -> None:
        match self.command:
            case "GET" if self.query.get("list-type") == "2":
                self._list()
            case "GET" | "HEAD":
                self.get()
            case "PUT" if "partNumber" in self.query:
                self.parts[self.query["uploadId"], self.query["partNumber"]] = self.body
                self.answer(HTTPStatus.OK, b"", {"ETag": f'"{self.query["partNumber"]}"'})
            case "PUT":
                self.put(self.body, self.headers.get("x-goog-if-generation-match") == "0")
            case "POST" if "uploads" in self.query:
                text = f"<InitiateMultipartUploadResult><UploadId>{escape(self.name)}</UploadId>"
                self.answer(HTTPStatus.OK, f"{text}</InitiateMultipartUploadResult>".encode())
            case "POST":
                self._complete()
            case "DELETE":
                self.delete()

    def _list(self) -> None:
        after = max(self.query.get("continuation-token", ""), self.query.get("start-after", ""))
        names, folders, last = self.page(after)
        found = [
            f"<Contents><Key>{escape(name)}</Key><Size>{len(blob.content)}</Size>"
            f"<LastModified>{_iso(blob.modified)}</LastModified>"
            f"<ETag>{escape(blob.tag)}</ETag></Contents>"
            for name in names
            for blob in (self.blobs[name],)
        ]
        found += [f"<CommonPrefixes><Prefix>{escape(f)}</Prefix></CommonPrefixes>" for f in folders]
        token = f"<NextContinuationToken>{escape(last)}</NextContinuationToken>" if last else ""
        text = f"<ListBucketResult>{''.join(found)}{token}</ListBucketResult>"
        self.answer(HTTPStatus.OK, text.encode())

    def _complete(self) -> None:
        numbers = re.findall(r"<PartNumber>(\d+)</PartNumber>", self.body.decode())
        content = b"".join(self.parts.pop((self.query["uploadId"], each)) for each in numbers)
        blob = self.blobs[self.name] = Blob(content)
        text = f"<CompleteMultipartUploadResult><ETag>{escape(blob.tag)}</ETag>"
        self.answer(HTTPStatus.OK, f"{text}</CompleteMultipartUploadResult>".encode())


def _iso(modified: str) -> str:
    return parsedate_to_datetime(modified).isoformat().replace("+00:00", "Z")


@dataclass(frozen=True)
class CloudStore:
    scheme: str
    options: dict[str, str]

    def location(self, prefix: str) -> StorageLocation:
        return StorageLocation.parse(f"{self.scheme}://{CONTAINER}/{prefix}", self.options)


@contextmanager
def azure_store() -> Iterator[CloudStore]:
    """Configured as an account is, apart from the address."""
    with server_process(_serve, AzureHandler) as port:
        yield CloudStore(
            "az",
            {
                "azure_storage_account_name": "account",
                "azure_storage_account_key": "c2VjcmV0",
                "azure_storage_endpoint": f"http://127.0.0.1:{port}",
            },
        )


@contextmanager
def google_store() -> Iterator[CloudStore]:
    with server_process(_serve, GoogleHandler) as port:
        account = {
            "gcs_base_url": f"http://127.0.0.1:{port}",
            "disable_oauth": True,
            "client_email": "",
            "private_key": "",
            "private_key_id": "",
        }
        yield CloudStore("gs", {"google_service_account_key": json.dumps(account)})


def _serve(handler: type[CloudHandler], pipe: Connection) -> None:
    state: dict[str, Any] = {"blobs": {}, "parts": {}, "lock": threading.Lock()}
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (handler,), state))
    pipe.send(server.server_address[1])
    server.serve_forever()
