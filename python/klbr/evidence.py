"""The durable log, by reference."""

from __future__ import annotations

from klbr.request import ask, texts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any


async def resolve(refs: Iterable[str]) -> Any:
    """What each reference such as `event:42` stands for, in order: `status` says whether it was found."""
    return await ask("evidence.resolve", refs=texts(refs, "refs"))
