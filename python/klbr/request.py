"""How a request module asks the host. The worker puts its own way of asking into `transport`."""

from __future__ import annotations

from klbr import HostError, vocabulary

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable
    from typing import Any

transport: Callable[[dict[str, Any]], Awaitable[Any]] | None = None
"""Sends one checked request and gives the value of its reply; set by a worker that has a host."""

JSON_DEPTH_MAX = 100
"""Nesting of a value in a request: what a frame allows, less the levels around the value."""


async def ask(method: str, **fields: Any) -> Any:
    """The value of the host's reply to `method`.

    Raises `TypeError` or `ValueError` for fields that the host could not read, before anything is sent, and
    `HostError` when the host refuses.
    """
    request = {"method": method, **fields}
    fault = vocabulary.fault_of_request(request)
    if fault is not None:
        raise TypeError(fault)
    if transport is None:
        raise HostError("refused", "there is no host here: requests work inside a cell only")
    return await transport(request)


def texts(values: Iterable[str], name: str) -> list[str]:
    """`values` as a list of strings; a lone string, which is an iterable of its letters, is refused."""
    if isinstance(values, (str, bytes)):
        raise TypeError(f"{name} is a list of strings, not one {type(values).__name__}")
    listed = list(values)
    for value in listed:
        if not isinstance(value, str):
            raise TypeError(f"{name} is a list of strings, it has one {type(value).__name__}")
    return listed


def json_value(value: Any, name: str, level: int = 1) -> Any:
    """`value` as the host will read it: tuples become lists, everything else stays or is refused."""
    if value is None or isinstance(value, (str, bool)):
        return value
    if isinstance(value, int):
        if not vocabulary.INTEGER_MIN <= value <= vocabulary.INTEGER_MAX:
            raise ValueError(f"{name} has an integer outside 64 bits")
        return int(value)
    if isinstance(value, float):
        if value - value != 0.0:
            raise ValueError(f"{name} has a number that JSON does not have: {value}")
        return float(value)
    if level > JSON_DEPTH_MAX:
        raise ValueError(f"{name} is nested deeper than {JSON_DEPTH_MAX}")
    if isinstance(value, (list, tuple)):
        return [json_value(item, name, level + 1) for item in value]
    if isinstance(value, dict):
        table = {}
        for key, item in value.items():
            if not isinstance(key, str):
                raise TypeError(f"{name} has a key that is not a string but {type(key).__name__}")
            table[key] = json_value(item, name, level + 1)
        return table
    raise TypeError(f"{name} has a value that JSON does not have: {type(value).__name__}")
