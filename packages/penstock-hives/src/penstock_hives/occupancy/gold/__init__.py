"""Gold tables in PostgreSQL: a batch of counts becomes occupancy, in one transaction."""

from penstock_hives.occupancy.gold.anchors import record_manual_count
from penstock_hives.occupancy.gold.ledger import BatchFacts, OccupancyLedger

__all__ = ["BatchFacts", "OccupancyLedger", "record_manual_count"]
