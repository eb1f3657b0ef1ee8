"""Other sessions of this host, reached by message."""

from __future__ import annotations

from klbr.request import ask, json_value, texts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any


async def open(mode: str = "independent", evidence: Iterable[str] = ()) -> dict[str, Any]:
    """Opens a session: `peer_id`, `state`."""
    result: dict[str, Any] = await ask("peer.open", mode=mode, evidence=texts(evidence, "evidence"))
    return result


async def send(peer_id: str, request_id: str, content: str, evidence: Iterable[str] = ()) -> dict[str, Any]:
    """Sends a request. The same `request_id` again is the same request, not a second one."""
    refs = texts(evidence, "evidence")
    result: dict[str, Any] = await ask(
        "peer.send", peer_id=peer_id, request_id=request_id, content=content, evidence=refs
    )
    return result


async def message(
    peer_id: str, request_id: str, content: str, evidence: Iterable[str] = ()
) -> dict[str, Any]:
    """The same as `send`, under its other name on the wire."""
    refs = texts(evidence, "evidence")
    result: dict[str, Any] = await ask(
        "peer.message", peer_id=peer_id, request_id=request_id, content=content, evidence=refs
    )
    return result


async def result(request_id: str, wait_ms: int = 0) -> dict[str, Any]:
    """How a request stands, after waiting for its end for up to `wait_ms`."""
    answer: dict[str, Any] = await ask("peer.result", request_id=request_id, wait_ms=wait_ms)
    return answer


async def submit_result(request_id: str, result: Any) -> dict[str, Any]:
    """Answers a request that this session was sent, with any JSON value."""
    value = json_value(result, "result")
    answer: dict[str, Any] = await ask("peer.submit_result", request_id=request_id, result=value)
    return answer


async def cancel(request_id: str) -> dict[str, Any]:
    """Cancels a request that this session sent."""
    answer: dict[str, Any] = await ask("peer.cancel", request_id=request_id)
    return answer


async def get(peer_id: str) -> dict[str, Any]:
    """One peer: `peer_id`, `state`."""
    answer: dict[str, Any] = await ask("peer.get", peer_id=peer_id)
    return answer


async def list() -> Any:
    """All peers of this session."""
    return await ask("peer.list")


async def stop(peer_id: str, drain: bool = True) -> dict[str, Any]:
    """Stops a peer; with `drain` after the requests that it already has."""
    answer: dict[str, Any] = await ask("peer.stop", peer_id=peer_id, drain=drain)
    return answer
