"""Speech to the operator of this machine."""

from __future__ import annotations

from klbr.request import ask

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


async def send(text: str) -> dict[str, Any]:
    """Says `text` to the operator, through the delivery review.

    Gives `effect_id`, `status` (`confirmed` or `held`), `event_id` and `reason`. `held` means that nobody has
    seen the text. Every call is a new message, equal text or not.
    """
    result: dict[str, Any] = await ask("local.send", text=text)
    return result
