"""A cache in front of the database: in process by default, memcached by URL.

async with open_cache(None) as cache:
    await cache.set(keys.key("hive", 7), document, ttl=600)
"""

from penstock_store.cache.cache import Cache, CacheKeys, CacheStatistics
from penstock_store.cache.client import BlockingCache, open_cache
from penstock_store.cache.memcached import MemcachedCache
from penstock_store.cache.memory import MemoryCache
from penstock_store.cache.single_flight import SingleFlight, StaleIfErrorCache

__all__ = [
    "BlockingCache",
    "Cache",
    "CacheKeys",
    "CacheStatistics",
    "MemcachedCache",
    "MemoryCache",
    "SingleFlight",
    "StaleIfErrorCache",
    "open_cache",
]
