"""Private keys in PEM files that several processes share: each file is created once, atomically."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes

from penstock.core.errors import ConfigurationError


def create_key_file(file: Path, key: RSAPrivateKey | EllipticCurvePrivateKey) -> None:
    """Write the key, readable by its owner only. A file that exists already is not replaced."""
    content = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    with tempfile.NamedTemporaryFile(dir=file.parent, prefix=".key-") as draft:
        draft.write(content)
        draft.flush()
        os.fsync(draft.fileno())
        try:
            file.hardlink_to(draft.name)  # fails if another process was faster
        except FileExistsError:
            return


def read_key_file(file: Path) -> PrivateKeyTypes:
    try:
        return serialization.load_pem_private_key(file.read_bytes(), password=None)
    except (OSError, ValueError, TypeError) as error:
        raise ConfigurationError(f"{file} is not a private key in PEM format: {error}") from error
