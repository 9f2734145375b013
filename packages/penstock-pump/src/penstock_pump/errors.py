"""The errors that can occur while one file is handled.

Each has the code of its report, as sr_report(7) defines it, and tells whether a retry can help. An
error ends the handling of one file, never the pump.
"""

from __future__ import annotations

import errno
from typing import ClassVar

from penstock.core.errors import PenstockError


class PumpError(PenstockError):
    """A post could not be processed; `code` is that of its report."""

    code: ClassVar[int] = 499
    transient = True


class BadPost(PumpError):
    """A message that is not a post, or that contradicts itself."""

    code = 417
    transient = False


class OutsideDirectory(BadPost):
    """A post whose file would be written outside its directory."""


class ForbiddenHost(BadPost):
    """A post that names a host it may not name."""


class ForbiddenFile(BadPost):
    """A post that names a local file outside the allowed directories."""


class UnsupportedSource(PumpError):
    """A URL without a registered transport, or an operation that the transport does not have."""

    code = 503
    transient = False


class SourceUnavailable(PumpError):
    """The server does not answer, breaks off, or reports an error."""

    code = 503


class SourceMissing(PumpError):
    """The server does not have the file."""


class WrongSize(PumpError):
    """The server sent more or fewer bytes than were announced."""


class SumMismatch(PumpError):
    """The content does not have the announced checksum."""


class FileChanging(PumpError):
    """A file was written to while it was read."""


class PluginRefusal(PumpError):
    """A plugin has failed, and says that it will fail again."""

    transient = False


class RemoveFailed(PumpError):
    """A file or directory could not be removed, or a link could not be made."""

    code = 500


def unusable_name(error: Exception) -> str | None:
    """Why no retry can succeed: the file system cannot have a file of this name."""
    if isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG:
        return "a name is too long for the file system"
    return "a name is not UTF-8" if isinstance(error, UnicodeEncodeError) else None
