"""Encodings of requests and responses: JSON, and the XML and MIME of the Ichnaea clients.

`read_request` and `read_response` detect the format from the content, because the Ichnaea clients
label their messages wrongly.
"""

from penstock_jobs.formats.message import (
    EncodedMessage,
    MessageFormat,
    read_request,
    read_response,
    write_request,
    write_response,
)

__all__ = [
    "EncodedMessage",
    "MessageFormat",
    "read_request",
    "read_response",
    "write_request",
    "write_response",
]
