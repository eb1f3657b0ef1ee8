"""Another name for opening a peer session."""

from __future__ import annotations

from klbr.request import ask, texts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any


async def open(mode: str = "independent", evidence: Iterable[str] = ()) -> dict[str, Any]:
    """Opens a session, as `peer.open` does: `peer_id`, `state`."""
    result: dict[str, Any] = await ask("agents.open", mode=mode, evidence=texts(evidence, "evidence"))
    return result
