"""Persistent Python namespaces on other machines."""

from __future__ import annotations

from klbr.request import ask, json_value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


async def ensure(target: str) -> dict[str, Any]:
    """A namespace on `target`: `target`, `namespace_id`, `namespace_generation`, `state`."""
    result: dict[str, Any] = await ask("remote.ensure", target=target)
    return result


async def call(
    target: str,
    namespace_id: str,
    namespace_generation: str,
    operation_id: str,
    operation: str = "execute",
    payload: Any = None,
) -> dict[str, Any]:
    """Runs one operation there: `operation_id`, `status`, `result`.

    The same `operation_id` again is the same operation. A namespace that was restarted has another
    generation, and a call to the old one raises `HostError` with the code `stale`.
    """
    result: dict[str, Any] = await ask(
        "remote.call",
        target=target,
        namespace_id=namespace_id,
        namespace_generation=namespace_generation,
        operation_id=operation_id,
        operation=operation,
        payload={} if payload is None else json_value(payload, "payload"),
    )
    return result


async def cancel(namespace_id: str, namespace_generation: str, operation_id: str) -> dict[str, Any]:
    """Cancels a running operation."""
    result: dict[str, Any] = await ask(
        "remote.cancel",
        namespace_id=namespace_id,
        namespace_generation=namespace_generation,
        operation_id=operation_id,
    )
    return result


async def close(namespace_id: str, namespace_generation: str) -> dict[str, Any]:
    """Ends a namespace and all that runs in it."""
    result: dict[str, Any] = await ask(
        "remote.close", namespace_id=namespace_id, namespace_generation=namespace_generation
    )
    return result
