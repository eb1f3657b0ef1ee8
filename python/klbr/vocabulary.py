"""Every message and every host request, field by field: the shapes of klbr-protocol(7) as data.

A shape maps a field to the name of its kind in `KINDS`. A message has exactly the fields of its shape.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

IDENTIFIER_CHARACTERS = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-")
IDENTIFIER_CHARACTERS_MAX = 128
INTEGER_MAX = 2**63 - 1
INTEGER_MIN = -(2**63)

ROLES = ("workbench", "hooks")
SLOTS = ("attention.plan", "delivery.review")
CELL_STATUSES = ("ok", "error", "yielded", "interrupted")
STREAMS = ("stdout", "stderr", "result")
ERROR_CODES = (
    "scope_expired",
    "too_many_requests",
    "invalid_request",
    "too_large",
    "reply_too_large",
    "not_found",
    "refused",
    "conflict",
    "stale",
    "timeout",
    "cancelled",
    "unavailable",
    "unknown_outcome",
    "internal",
)


def is_identifier(value: object) -> bool:
    """Whether `value` may name a session, a generation, an operation or a request."""
    return (
        type(value) is str
        and 0 < len(value) <= IDENTIFIER_CHARACTERS_MAX
        and IDENTIFIER_CHARACTERS.issuperset(value)
    )


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_text_list(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _is_text_table(value: object) -> bool:
    return isinstance(value, dict) and all(isinstance(item, str) for item in value.values())


def _is_count(value: object) -> bool:
    return type(value) is int and 0 <= value <= INTEGER_MAX


def _is_seconds(value: object) -> bool:
    return value is None or type(value) in (int, float)


def _is_scope(value: object) -> bool:
    return isinstance(value, dict) and value.keys() == {"kind"} and value["kind"] in ("global", "session")


def _is_slot_list(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) and item in SLOTS for item in value)


def _is_output(value: object) -> bool:
    return isinstance(value, list) and all(
        isinstance(record, dict)
        and record.keys() == {"stream", "text"}
        and isinstance(record["text"], str)
        and isinstance(record["stream"], str)
        and record["stream"] in STREAMS
        for record in value
    )


def _one_of(names: tuple[str, ...]) -> Callable[[object], bool]:
    return lambda value: isinstance(value, str) and value in names


KINDS: dict[str, Callable[[object], bool]] = {
    "any JSON value": lambda value: True,
    "a string": _is_text,
    "a string or null": lambda value: value is None or isinstance(value, str),
    "a list of strings": _is_text_list,
    "a table of strings": _is_text_table,
    "an object": lambda value: isinstance(value, dict),
    "a boolean": lambda value: value is True or value is False,
    "a non-negative 64-bit integer": _is_count,
    "a number or null": _is_seconds,
    'the object {"kind": "global"} or {"kind": "session"}': _is_scope,
    "an identifier": is_identifier,
    "a role": _one_of(ROLES),
    "a slot": _one_of(SLOTS),
    "a list of slots": _is_slot_list,
    "a cell status": _one_of(CELL_STATUSES),
    "an error code": _one_of(ERROR_CODES),
    "a list of output records": _is_output,
}

_ANY = "any JSON value"
_TEXT = "a string"
_MAYBE_TEXT = "a string or null"
_TEXTS = "a list of strings"
_COUNT = "a non-negative 64-bit integer"
_SCOPE = 'the object {"kind": "global"} or {"kind": "session"}'
_ID = "an identifier"

_PEER_OPEN = {"mode": _TEXT, "evidence": _TEXTS}
_PEER_SEND = {"peer_id": _TEXT, "request_id": _TEXT, "content": _TEXT, "evidence": _TEXTS}

REQUESTS: dict[str, dict[str, str]] = {
    "local.send": {"text": _TEXT},
    "runtime.wait": {"seconds": "a number or null", "reason": _TEXT},
    "runtime.inspect": {},
    "runtime.instructions": {},
    "hooks.list": {},
    "hooks.describe": {"slot": _TEXT},
    "skills.index": {},
    "skills.load": {"id": _TEXT},
    "workspace.info": {},
    "workspace.run": {
        "argv": _TEXTS,
        "cwd": _TEXT,
        "env": "a table of strings",
        "timeout_ms": _COUNT,
        "max_output_bytes": _COUNT,
    },
    "evidence.resolve": {"refs": _TEXTS},
    "behavior.activate": {"path": _TEXT, "expected_epoch": _COUNT},
    "maintenance.originate": {"purpose": _TEXT, "reason": _TEXT, "evidence_refs": _TEXTS},
    "maintenance.assess": {"work_item_id": _TEXT, "outcome": _TEXT},
    "orientation.stage": {"candidate_id": _TEXT, "text": _TEXT, "target": _TEXT, "scope": _SCOPE},
    "orientation.current": {"scope": _SCOPE},
    "orientation.adopt": {"candidate_id": _TEXT, "operation_id": _TEXT},
    "frontier.select": {},
    "peer.open": _PEER_OPEN,
    "agents.open": _PEER_OPEN,
    "peer.send": _PEER_SEND,
    "peer.message": _PEER_SEND,
    "peer.result": {"request_id": _TEXT, "wait_ms": _COUNT},
    "peer.submit_result": {"request_id": _TEXT, "result": _ANY},
    "peer.cancel": {"request_id": _TEXT},
    "peer.get": {"peer_id": _TEXT},
    "peer.list": {},
    "peer.stop": {"peer_id": _TEXT, "drain": "a boolean"},
    "remote.ensure": {"target": _TEXT},
    "remote.call": {
        "target": _TEXT,
        "namespace_id": _TEXT,
        "namespace_generation": _TEXT,
        "operation_id": _TEXT,
        "operation": _TEXT,
        "payload": _ANY,
    },
    "remote.cancel": {"namespace_id": _TEXT, "namespace_generation": _TEXT, "operation_id": _TEXT},
    "remote.close": {"namespace_id": _TEXT, "namespace_generation": _TEXT},
}
"""Host requests: method to the shape of its other fields."""

MESSAGES: dict[str, dict[str, str]] = {
    "hello": {
        "token": _TEXT,
        "role": "a role",
        "revision": _MAYBE_TEXT,
        "slots": "a list of slots",
        "skills_revision": _MAYBE_TEXT,
    },
    "execute": {"id": _ID, "code": _TEXT},
    "invoke": {"id": _ID, "slot": "a slot", "input": _ANY},
    "host_request": {"id": _ID, "execution_id": _ID, "request": "an object"},
    "host_reply": {"id": _ID, "execution_id": _ID, "result": "an object"},
    "completed": {"id": _ID, "result": "an object"},
    "interrupt": {"id": _ID},
    "shutdown": {},
}

REPLIES: dict[str, dict[str, str]] = {
    "ok": {"value": _ANY},
    "error": {"code": "an error code", "message": _TEXT},
}

COMPLETIONS: dict[str, dict[str, str]] = {
    "cell": {
        "status": "a cell status",
        "output": "a list of output records",
        "truncated_bytes": _COUNT,
        "error": _MAYBE_TEXT,
    },
    "hook": {"value": _ANY},
    "failed": {"error": _TEXT},
}

_NESTED = {
    "host_request": ("request", "method", REQUESTS),
    "host_reply": ("result", "kind", REPLIES),
    "completed": ("result", "kind", COMPLETIONS),
}


def _fault(value: Any, tag: str, shapes: dict[str, dict[str, str]], what: str) -> str | None:
    if not isinstance(value, dict):
        return f"{what} is not an object"
    name = value.get(tag)
    if not isinstance(name, str) or name not in shapes:
        return f"{what} has no known {tag}"
    shape = shapes[name]
    if len(value) != len(shape) + 1:
        return f"{name} has missing or unknown fields"
    for field, kind in shape.items():
        if field not in value:
            return f"{name} has no {field}"
        if not KINDS[kind](value[field]):
            return f"{field} of {name} is not {kind}"
    return None


def fault_of_request(request: Any) -> str | None:
    """What is wrong with a host request; None when nothing is."""
    return _fault(request, "method", REQUESTS, "request")


def fault_of_message(message: Any) -> str | None:
    """What is wrong with a message; None when nothing is."""
    fault = _fault(message, "kind", MESSAGES, "message")
    if fault is None and message["kind"] in _NESTED:
        field, tag, shapes = _NESTED[message["kind"]]
        fault = _fault(message[field], tag, shapes, field)
    return fault
