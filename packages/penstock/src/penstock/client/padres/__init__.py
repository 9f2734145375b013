"""PADRES: publications and subscriptions in the content language, over any number of brokers.

`penstock.client.padres.blocking_client` has the same without `async`.
"""

from penstock.client.padres.client import PadresClient
from penstock.client.padres.inbox import PublicationInbox, ReceivedPublication, SubscriptionNotice

__all__ = ["PadresClient", "PublicationInbox", "ReceivedPublication", "SubscriptionNotice"]
