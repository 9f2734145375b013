"""A cache in front of the database: in process by default, memcached by URL.

async with open_cache(None) as cache:
    await cache.set(keys.key("hive", 7), document, ttl=600)
"""

from penstock.store.cache.blocking import BlockingCache
from penstock.store.cache.contract import Cache, Figures
from penstock.store.cache.flight import SingleFlight
from penstock.store.cache.keys import Keys
from penstock.store.cache.memcached import MemcachedCache
from penstock.store.cache.memory import MemoryCache
from penstock.store.cache.opening import open_cache

__all__ = [
    "BlockingCache",
    "Cache",
    "Figures",
    "Keys",
    "MemcachedCache",
    "MemoryCache",
    "SingleFlight",
    "open_cache",
]
