"""One execution: its identity, its output, its requests to the host, how it ends."""

from __future__ import annotations

import itertools

from klbr.worker.output import Output

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


class Cell:
    """State of one execution. The main thread owns it; the control thread reads and marks it."""

    def __init__(self, operation: str, code: str, number: int) -> None:
        self.operation = operation
        self.code = code
        self.name = f"<cell {number}>"
        self.output = Output()
        self.has_ended = False
        self.is_foreign = False
        """In a forked child: what it writes is not the cell's, and the host is out of its reach."""

        self.has_yielded = False
        self.request_numbers = itertools.count(1)
        self.pending: dict[str, tuple[Any, Any]] = {}
        """Request to its future and the loop of that."""
        self.waits: set[str] = set()
        """Requests that end the turn if the host accepts them, whoever still listens for the answer."""

        self.interrupts_asked = 0
        self.interrupts_delivered = 0
        self.is_being_interrupted = False
        self.cancel_queued_ms: float | None = None
        self.queue_cancel: Callable[[], None] | None = None
        self.broken_by: BaseException | None = None
        """What a signal handler raised while the cell's task waited."""

    def status_of(self, error: BaseException | None) -> str:
        """The wire's word for an end with `error`."""
        if self.has_yielded:
            return "yielded"
        if error is None:
            return "ok"
        if isinstance(error, SystemExit) and error.code in (None, 0):
            return "ok"
        if self.interrupts_delivered and _is_interruption(error):
            return "interrupted"
        return "error"


def _is_interruption(error: BaseException) -> bool:
    # By name: asyncio is not imported for asking, and a cancelled cell has imported it.
    return isinstance(error, KeyboardInterrupt) or type(error).__name__ == "CancelledError"
