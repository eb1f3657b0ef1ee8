"""Skills: written trails to a state, offered by id."""

from __future__ import annotations

from klbr.request import ask

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


async def index() -> dict[str, Any]:
    """`revision`, the `skills` (`id`, `digest`) and the `refused` (`id`, `root`, `reason`)."""
    result: dict[str, Any] = await ask("skills.index")
    return result


async def load(id: str) -> dict[str, Any]:
    """The body of one skill: `id`, `digest`, `text`."""
    result: dict[str, Any] = await ask("skills.load", id=id)
    return result
