"""Which files of this machine a post may name.

A post is a stranger's word, and the pump can read files that the stranger cannot. So `file:` URLs
lead into listed directories only. The file is opened by its path alone (`O_PATH`) at first, the
kernel then says where that is, symbolic links resolved, and only a file inside is opened for
reading: what was checked is what is read, whatever is renamed meanwhile.
"""

from __future__ import annotations

import errno
import os
import stat
from dataclasses import dataclass
from pathlib import Path

from penstock.pump.errors import (
    BadPost,
    ForbiddenFile,
    PumpError,
    SourceMissing,
    SourceUnavailable,
    UnsupportedSource,
)
from penstock.pump.landing.target import is_inside


@dataclass(frozen=True, slots=True)
class FileRule:
    directories: tuple[Path, ...] = ()  #: absolute; none: no file at all

    def open(self, path: str) -> int:
        """A regular file, open for reading. Blocking."""
        found = -1
        try:
            found = os.open(path, os.O_PATH | os.O_CLOEXEC)
            own = f"/proc/self/fd/{found}"
            self._check(path, os.readlink(own))  # noqa: PTH115 - it is asked for every file
            if not stat.S_ISREG(os.fstat(found).st_mode):
                raise UnsupportedSource(f"{path} is not a regular file")
            return os.open(own, os.O_RDONLY | os.O_CLOEXEC)
        except (OSError, ValueError) as error:
            # Whether there is such a file outside is nobody's business, either.
            self._check(path, os.path.realpath(path.replace("\0", "")))
            raise explain(path, error) from error
        finally:
            if found >= 0:
                os.close(found)

    def _check(self, path: str, real: str) -> None:
        """Most directories are no links: those are compared before any is resolved."""
        if not any(is_inside(real, os.fspath(each)) for each in self.directories) and not any(
            is_inside(real, os.path.realpath(each)) for each in self.directories
        ):
            raise ForbiddenFile(
                f"file:{path} is not below a directory of file_directories: "
                "list its directory there if posts may name its files"
            )


def explain(path: str, error: OSError | ValueError) -> PumpError:
    """What the file system said of a file, in the pump's words."""
    if isinstance(error, ValueError):
        return BadPost(f"{path!r} is no path: {error}")
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        return SourceMissing(f"{path} is not there")
    if error.errno == errno.ENAMETOOLONG:
        return BadPost(f"{path[:120]}… is too long for a path of this machine")
    return SourceUnavailable(f"{path}: {error.strerror}")
