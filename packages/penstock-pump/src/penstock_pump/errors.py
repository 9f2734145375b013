"""What can go wrong on a file's way, named once.

Each error knows the code its report carries, as sr_report(7) has them, and whether trying again can
help. What is raised here ends one file's turn, never the pump's.
"""

from __future__ import annotations

import errno
from typing import ClassVar

from penstock.core.errors import PenstockError


class PumpError(PenstockError):
    """The root: what befell one file."""

    code: ClassVar[int] = 499
    passing: ClassVar[bool] = True  #: another attempt may succeed


class BadPost(PumpError):
    """A message that is no post, or one that contradicts itself."""

    code = 417
    passing = False


class OutsideDirectory(PumpError):
    """A post whose file would be written outside the directory it belongs in."""

    code = 417
    passing = False


class ForbiddenHost(PumpError):
    """A post that sends us to a host we may not be sent to."""

    code = 417
    passing = False


class ForbiddenFile(PumpError):
    """A post that names a file of this machine outside the directories it may name."""

    code = 417
    passing = False


class UnsupportedSource(PumpError):
    """A URL no transport is registered for, or an operation it does not have."""

    code = 503
    passing = False


class SourceUnavailable(PumpError):
    """The server is not there, stalls, breaks off, or says that it cannot."""

    code = 503


class SourceMissing(PumpError):
    """The server is there, the file is not."""


class WrongSize(PumpError):
    """The server sent more or less than was announced."""


class SumMismatch(PumpError):
    """What came is not what was announced."""


class FileChanging(PumpError):
    """A file that was written to while it was read: what was read is worth nothing."""


class RemoveFailed(PumpError):
    """A file or directory that could not be removed, or a link that could not be made."""

    code = 500


def unusable_name(error: Exception) -> str | None:
    """Why no attempt can succeed, if that is so: a name too long for the file system, or one that
    no file can have."""
    if isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG:
        return "a name is too long for the file system"
    return "a name is not UTF-8" if isinstance(error, UnicodeEncodeError) else None
