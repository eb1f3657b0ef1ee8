"""The runtime around this session: its state, its instructions, the end of a turn."""

from __future__ import annotations

from klbr.request import ask

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

WAIT_SECONDS_MAX = 600.0
WAIT_REASON_BYTES_MAX = 2_048


async def wait(seconds: float | None = None, reason: str = "waiting for input") -> dict[str, Any]:
    """Ends the turn until there is input, or at the latest after `seconds` (null, or up to 600).

    The wait is durable: it outlives this process. When the host accepts it, the cell ends there and the code
    below does not run; the next cell is a new one.
    """
    if seconds is not None:
        if isinstance(seconds, bool) or not isinstance(seconds, (int, float)):
            raise TypeError(f"seconds is a number or None, not {type(seconds).__name__}")
        if not 0 < seconds <= WAIT_SECONDS_MAX:
            raise ValueError(f"seconds is above 0 and at most {WAIT_SECONDS_MAX:g}, not {seconds}")
    if isinstance(reason, str) and len(reason.encode("utf-8", "replace")) > WAIT_REASON_BYTES_MAX:
        raise ValueError(f"reason is longer than {WAIT_REASON_BYTES_MAX} bytes")
    result: dict[str, Any] = await ask("runtime.wait", seconds=seconds, reason=reason)
    return result


async def inspect() -> dict[str, Any]:
    """What runs here: the host's clock, identities, epoch, containment, route, context, limits."""
    result: dict[str, Any] = await ask("runtime.inspect")
    return result


async def instructions() -> dict[str, Any]:
    """The exact instruction text that is current, with the digest of the pinned one and every revision."""
    result: dict[str, Any] = await ask("runtime.instructions")
    return result
