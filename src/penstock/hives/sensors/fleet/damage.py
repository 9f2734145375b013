"""What is left of a frame that came to harm: bytes that no codec takes for a message.

How it was harmed follows from the row's dice: cut off, run on, of a type that is none, or, where
there is a checksum, with a bit turned over.
"""

from __future__ import annotations

from typing import Final

from penstock.hives.sensors.fleet.sent import Form
from penstock.hives.sensors.messages import report

#: Where the type is; a status has none.
_TYPE_AT: Final = {Form.REPORT: 14, Form.EVENT: 0}
_NO_TYPE: Final = 0x55


def damage(form: Form, body: bytes, dice: int) -> bytes:
    how, much = dice % 3, dice // 3
    if how == 0:
        # Shorter than any message that could be mistaken for it.
        return body[: much % min(len(body), report.DATA)]
    if how == 1:
        return body + bytes(1 + report.LONGEST + much % 64)
    if form is Form.REPORT2:
        at = 2 + much % 20
        return body[:at] + bytes((body[at] ^ 1 << much % 8,)) + body[at + 1 :]
    if form is Form.STATUS:
        return body[: much % len(body)]
    at = _TYPE_AT[form]
    return body[:at] + bytes((_NO_TYPE,)) + body[at + 1 :]
