"""Changing the own policy: activating a release of hook source."""

from __future__ import annotations

from klbr.request import ask

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


async def activate(path: str, expected_epoch: int) -> dict[str, Any]:
    """Makes the release at `path` the active one if `expected_epoch` is still the current epoch.

    Gives `epoch`, `release`, `previous_release`. A lost race raises `HostError` with the code `conflict`.
    """
    result: dict[str, Any] = await ask("behavior.activate", path=path, expected_epoch=expected_epoch)
    return result
