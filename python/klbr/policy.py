"""What policy handlers are given and what they answer.

A handler is a function of two arguments, `handler(request, context)`, plain or `async`. The slot
`attention.plan` gets an `AttentionRequest` and answers with `Wake`, `Defer` or `Ignore`; `delivery.review`
gets a `DeliveryRequest` and answers with `Allow` or `Hold`. Anything else is a failed call, and the host then
does the careful thing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

DEFER_SECONDS_MAX = 600.0
REASON_BYTES_MAX = 2_048
PRIORITY_MAX = 100


@dataclass(frozen=True, slots=True)
class AttentionRequest:
    """An input that arrived: shall the session be woken for it?"""

    event_id: int
    source: str
    received_at_ms: int


@dataclass(frozen=True, slots=True)
class DeliveryRequest:
    """A text that a session wants to send: may it go out?"""

    effect_id: str
    destination: str
    text: str


@dataclass(frozen=True, slots=True)
class HookContext:
    """Who asks, and which source answers."""

    session_id: str
    generation: str
    operation_id: str
    slot: str
    revision: str


@dataclass(frozen=True, slots=True)
class Wake:
    """Wake the session; a higher priority (0 to 100) goes first."""

    priority: int = 0

    def __post_init__(self) -> None:
        if type(self.priority) is not int or not 0 <= self.priority <= PRIORITY_MAX:
            raise ValueError(f"priority is an integer from 0 to {PRIORITY_MAX}, not {self.priority!r}")


@dataclass(frozen=True, slots=True)
class Defer:
    """Look again after `seconds`, above 0 and at most 600."""

    seconds: float

    def __post_init__(self) -> None:
        if type(self.seconds) not in (int, float) or not math.isfinite(self.seconds):
            raise ValueError(f"seconds is a finite number, not {self.seconds!r}")
        if not 0 < self.seconds <= DEFER_SECONDS_MAX:
            raise ValueError(f"seconds is above 0 and at most {DEFER_SECONDS_MAX:g}, not {self.seconds}")


@dataclass(frozen=True, slots=True)
class Ignore:
    """Leave the input in the log and do nothing about it."""

    reason: str

    def __post_init__(self) -> None:
        _check_reason(self.reason)


@dataclass(frozen=True, slots=True)
class Allow:
    """Let the text go out."""


@dataclass(frozen=True, slots=True)
class Hold:
    """Keep the text back until the operator decides."""

    reason: str

    def __post_init__(self) -> None:
        _check_reason(self.reason)


AttentionDecision = Wake | Defer | Ignore
DeliveryDecision = Allow | Hold


def _check_reason(reason: object) -> None:
    if not isinstance(reason, str) or not reason.strip():
        raise ValueError("reason is a text that is not empty")
    if len(reason.encode("utf-8", "replace")) > REASON_BYTES_MAX:
        raise ValueError(f"reason is longer than {REASON_BYTES_MAX} bytes")
