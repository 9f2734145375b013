"""Which cache: the one in this process, or the memcached a URL names."""

from __future__ import annotations

from urllib.parse import urlsplit

from penstock.core.errors import ConfigurationError
from penstock.store.cache.contract import Cache
from penstock.store.cache.memcached import PORT, MemcachedCache
from penstock.store.cache.memory import MemoryCache


def open_cache(url: str | None) -> Cache:
    """`memcached://host:11211`, or nothing for the cache in this process."""
    if url is None:
        return MemoryCache()
    parts = urlsplit(url)
    try:
        port = parts.port or PORT
    except ValueError:
        port = 0
    if parts.scheme != "memcached" or not parts.hostname or not port:
        raise ConfigurationError(
            f"{url!r} is no cache; should be memcached://host:{PORT}, or nothing for the one in "
            "this process"
        )
    return MemcachedCache(parts.hostname, port)
