"""Texts that a session adopts into its own instructions."""

from __future__ import annotations

from klbr.request import ask

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any


async def stage(
    candidate_id: str, text: str, target: str, scope: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Proposes `text` for `target`, for every session of the host unless `scope` says otherwise."""
    result: dict[str, Any] = await ask(
        "orientation.stage", candidate_id=candidate_id, text=text, target=target, scope=_scope(scope)
    )
    return result


async def current(scope: Mapping[str, str] | None = None) -> Any:
    """The adopted texts: a list of `target`, `digest`, `text`, `adopted_at`."""
    return await ask("orientation.current", scope=_scope(scope))


async def adopt(candidate_id: str, operation_id: str) -> dict[str, Any]:
    """Adopts a staged text; the same `operation_id` again gives the same receipt."""
    result: dict[str, Any] = await ask(
        "orientation.adopt", candidate_id=candidate_id, operation_id=operation_id
    )
    return result


def _scope(scope: Mapping[str, str] | None) -> dict[str, str]:
    return {"kind": "global"} if scope is None else dict(scope)
