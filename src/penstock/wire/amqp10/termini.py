"""Sources and targets: what is at the two ends of a link."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from penstock.wire.amqp10.composites import (
    ANY,
    BOOLEAN,
    MAP,
    SYMBOL_,
    SYMBOLS,
    UINT,
    Composite,
    Composites,
)
from penstock.wire.amqp10.states import STATES, State

# Terminus durability: what outlives the link.
NOT_DURABLE: Final = 0
CONFIGURATION: Final = 1  #: that it exists
UNSETTLED_STATE: Final = 2  #: and which deliveries are open

# When the time of a terminus begins to run out.
LINK_DETACH: Final = "link-detach"
SESSION_END: Final = "session-end"
CONNECTION_CLOSE: Final = "connection-close"
NEVER: Final = "never"
EXPIRY_POLICIES: Final = (LINK_DETACH, SESSION_END, CONNECTION_CLOSE, NEVER)

# How a source gives out messages.
MOVE: Final = "move"
COPY: Final = "copy"


@dataclass(slots=True)
class Source:
    """Where messages come from."""

    address: Any = None
    durable: int = NOT_DURABLE
    expiry_policy: str = SESSION_END
    timeout: int = 0  #: seconds it stays after the policy says its time runs
    dynamic: bool = False
    dynamic_node_properties: dict[Any, Any] | None = None
    distribution_mode: str | None = None
    filter: dict[Any, Any] | None = None
    default_outcome: State | None = None
    outcomes: tuple[str, ...] = ()
    capabilities: tuple[str, ...] = ()


@dataclass(slots=True)
class Target:
    """Where messages go."""

    address: Any = None
    durable: int = NOT_DURABLE
    expiry_policy: str = SESSION_END
    timeout: int = 0
    dynamic: bool = False
    dynamic_node_properties: dict[Any, Any] | None = None
    capabilities: tuple[str, ...] = ()


@dataclass(slots=True)
class Coordinator:
    """Where transactions are declared."""

    capabilities: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DeleteOnClose:
    """A dynamic node goes with the link that made it."""


@dataclass(frozen=True, slots=True)
class DeleteOnNoLinks:
    """It goes when no link uses it."""


@dataclass(frozen=True, slots=True)
class DeleteOnNoMessages:
    """It goes with the link that made it, once it is empty."""


@dataclass(frozen=True, slots=True)
class DeleteOnNoLinksOrMessages:
    """It goes when no link uses it and it is empty."""


LIFETIMES: Final = Composites(
    (
        Composite(0x2B, "amqp:delete-on-close:list", DeleteOnClose, ()),
        Composite(0x2C, "amqp:delete-on-no-links:list", DeleteOnNoLinks, ()),
        Composite(0x2D, "amqp:delete-on-no-messages:list", DeleteOnNoMessages, ()),
        Composite(0x2E, "amqp:delete-on-no-links-or-messages:list", DeleteOnNoLinksOrMessages, ()),
    )
)

SOURCES: Final = Composites(
    (
        Composite(
            0x28,
            "amqp:source:list",
            Source,
            (
                ANY,
                UINT,
                SYMBOL_,
                UINT,
                BOOLEAN,
                MAP,
                SYMBOL_,
                MAP,
                STATES.kind("an outcome", others=True),
                SYMBOLS,
                SYMBOLS,
            ),
        ),
    )
)

TARGETS: Final = Composites(
    (
        Composite(
            0x29,
            "amqp:target:list",
            Target,
            (ANY, UINT, SYMBOL_, UINT, BOOLEAN, MAP, SYMBOLS),
        ),
        Composite(0x30, "amqp:coordinator:list", Coordinator, (SYMBOLS,)),
    )
)
