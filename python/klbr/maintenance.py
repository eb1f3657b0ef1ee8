"""Work that the session gives itself, with its reasons."""

from __future__ import annotations

from klbr.request import ask, texts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any


async def originate(purpose: str, reason: str, evidence_refs: Iterable[str] = ()) -> dict[str, Any]:
    """Opens a work item: `work_item_id`, `status`, `event_id`."""
    refs = texts(evidence_refs, "evidence_refs")
    result: dict[str, Any] = await ask(
        "maintenance.originate", purpose=purpose, reason=reason, evidence_refs=refs
    )
    return result


async def assess(work_item_id: str, outcome: str) -> dict[str, Any]:
    """Closes a work item with its outcome, such as `no-change`."""
    result: dict[str, Any] = await ask("maintenance.assess", work_item_id=work_item_id, outcome=outcome)
    return result
