"""How requests and responses look on the wire: XML and MIME as the Ichnaea clients have them, JSON.

`read_request` and `read_response` take any of them; what a message says of itself is not trusted,
because those clients mislabel theirs.
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
