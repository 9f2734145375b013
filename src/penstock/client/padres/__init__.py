"""PADRES: publications and subscriptions in the content language, over any number of brokers.

`penstock.client.padres.blocking` has the same without `async`.
"""

from penstock.client.padres.client import Client
from penstock.client.padres.inbox import Inbox
from penstock.client.padres.publication import Interest, Received

__all__ = ["Client", "Inbox", "Interest", "Received"]
