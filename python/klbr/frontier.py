"""Folding the own history."""

from __future__ import annotations

from klbr.request import ask

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


async def select() -> dict[str, Any]:
    """Asks for a fold at the end of the turn; `status` is `selected` or `nothing_to_fold`."""
    result: dict[str, Any] = await ask("frontier.select")
    return result
