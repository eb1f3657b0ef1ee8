"""The policy that is active: which source answers for each slot."""

from __future__ import annotations

from klbr.request import ask

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


async def list() -> Any:
    """Per slot: `slot`, `entrypoint`, `revision`, `epoch`."""
    return await ask("hooks.list")


async def describe(slot: str) -> Any:
    """One slot, with the JSON Schemas of its input and result and its budget in milliseconds."""
    return await ask("hooks.describe", slot=slot)
