"""The control protocol: bytes on the socket to checked messages and back, and no I/O.

Both sides of the connection refuse the same frames, see klbr-protocol(7). A refused frame ends the connection
and the generation with it, so every fault here is one exception, `ProtocolError`, with a reason for the log.

The module is imported while a worker starts: it uses the C scanner that lies under the `json` package
and leaves the package itself, which brings the regular expression engine along, unimported.
"""

from __future__ import annotations

from klbr import vocabulary

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

VERSION = 1
FRAME_BYTES_MAX = 1_048_576
"""Payload of one frame."""
JSON_DEPTH_MAX = 128
"""Nesting of one payload; the outermost object is the first level."""

_INFINITY = float("inf")
_WHITESPACE = " \t\n\r"


class ProtocolError(Exception):
    """The peer sent what the protocol does not allow; the connection cannot be used any more."""


class FrameTooLarge(ValueError):
    """A message of ours does not fit into a frame; nothing of it was sent."""


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) != len(pairs):
        raise ProtocolError("duplicate key in an object")
    return table


def _finite(text: str) -> float:
    number = float(text)
    if number in (_INFINITY, -_INFINITY):
        raise ProtocolError("number overflows to infinity")
    return number


def _integer(text: str) -> int:
    # Beyond 308 digits an integer has no double either, and the other decoder refuses it too.
    if len(text) > 300:
        _finite(text)
    return int(text)


def _no_constant(text: str) -> Any:
    raise ProtocolError(f"{text} is not a JSON number")


class _Grammar:
    """What the C scanner reads its options from."""

    strict = True
    object_hook = None
    object_pairs_hook = staticmethod(_unique)
    parse_float = staticmethod(_finite)
    parse_int = staticmethod(_integer)
    parse_constant = staticmethod(_no_constant)


def _no_default(value: object) -> Any:
    raise TypeError(f"{type(value).__name__} is not a JSON value")


def _codec() -> tuple[Callable[[str, int], tuple[Any, int]], Callable[[Any, int], Any]]:
    try:
        import _json

        scan = _json.make_scanner(_Grammar)  # type: ignore[arg-type]
        encode = _json.make_encoder(
            None, _no_default, _json.encode_basestring, None, ":", ",", False, False, False
        )
    except (ImportError, AttributeError, TypeError):
        from json.decoder import JSONDecoder
        from json.encoder import JSONEncoder

        decoder = JSONDecoder(
            object_pairs_hook=_unique,
            parse_float=_finite,
            parse_int=_integer,
            parse_constant=_no_constant,
        )
        encoder = JSONEncoder(
            ensure_ascii=False,
            check_circular=False,
            allow_nan=False,
            separators=(",", ":"),
            default=_no_default,
        )
        scan_once: Any = decoder.scan_once  # type: ignore[attr-defined]
        return scan_once, lambda value, _level: (encoder.encode(value),)
    return scan, encode


_scan, _encode = _codec()


def _depth(value: Any) -> int:
    """Levels of containers in a decoded value, without recursion."""
    deepest = 0
    waiting = [(value, 1)]
    while waiting:
        node, level = waiting.pop()
        if level > deepest:
            deepest = level
        children = node.values() if isinstance(node, dict) else node
        for child in children:
            if isinstance(child, (dict, list)):
                waiting.append((child, level + 1))
    return deepest


def _text_depth(text: str) -> int:
    """Levels of brackets outside of strings: for a text that the scanner had no stack for."""
    deepest = level = 0
    quoted = escaped = False
    for character in text:
        if quoted:
            if escaped:
                escaped = False
            elif character == "\\":
                escaped = True
            elif character == '"':
                quoted = False
        elif character == '"':
            quoted = True
        elif character in "[{":
            level += 1
            if level > deepest:
                deepest = level
        elif character in "]}":
            level -= 1
    return deepest


def _refuse_surrogates(value: Any) -> None:
    waiting = [value]
    while waiting:
        node = waiting.pop()
        if isinstance(node, str):
            try:
                node.encode()
            except UnicodeEncodeError:
                raise ProtocolError("lone surrogate in a string") from None
        elif isinstance(node, dict):
            waiting.extend(node)
            waiting.extend(node.values())
        elif isinstance(node, list):
            waiting.extend(node)


def _scan_whole(text: str) -> tuple[Any, int]:
    try:
        return _scan(text, 0)
    except RecursionError:
        # A cell may have lowered the limit for the whole process: only real depth is the peer's fault.
        if _text_depth(text) > JSON_DEPTH_MAX:
            raise ProtocolError(f"nesting is deeper than {JSON_DEPTH_MAX}") from None
        import sys

        limit = sys.getrecursionlimit()
        sys.setrecursionlimit(max(limit, 2_000))
        try:
            return _scan(text, 0)
        finally:
            sys.setrecursionlimit(limit)


def parse_object(payload: bytes) -> dict[str, Any]:
    """The JSON object that `payload` is.

    Raises `ProtocolError` for everything else: see klbr-protocol(7), "Strictness".
    """
    try:
        text = payload.decode()
    except UnicodeDecodeError:
        raise ProtocolError("payload is not UTF-8") from None
    if text[:1] != "{" or text[-1:] != "}":
        text = text.strip(_WHITESPACE)
        if text[:1] != "{":
            raise ProtocolError("payload is not a JSON object")
    try:
        value, end = _scan_whole(text)
    except ProtocolError:
        raise
    except (StopIteration, ValueError) as error:
        raise ProtocolError(f"payload is not JSON: {error}"[:200]) from None
    if end != len(text):
        raise ProtocolError("trailing bytes behind the JSON object")
    if text.count("{") + text.count("[") > JSON_DEPTH_MAX and _depth(value) > JSON_DEPTH_MAX:
        raise ProtocolError(f"nesting is deeper than {JSON_DEPTH_MAX}")
    if "\\ud" in text or "\\uD" in text:
        _refuse_surrogates(value)
    if not isinstance(value, dict):
        raise ProtocolError("payload is not a JSON object")
    return value


def dump(value: Any) -> str:
    """`value` as JSON text.

    Raises `TypeError` for what is not a JSON value, and `ValueError` for a number that JSON does not have.
    """
    return "".join(_encode(value, 0))


def decode(payload: bytes, session: str, generation: str) -> dict[str, Any]:
    """The message of one frame, every field checked.

    Raises `ProtocolError` when the frame is not from this session's generation or not valid.
    """
    envelope = parse_object(payload)
    if envelope.keys() != {"version", "session_id", "generation", "message"}:
        raise ProtocolError("envelope has missing or unknown fields")
    version = envelope["version"]
    if type(version) is not int or version != VERSION:
        raise ProtocolError("foreign protocol version")
    if envelope["session_id"] != session:
        raise ProtocolError("foreign session")
    if envelope["generation"] != generation:
        raise ProtocolError("foreign generation")
    message = envelope["message"]
    fault = vocabulary.fault_of_message(message)
    if fault is not None:
        raise ProtocolError(fault)
    checked: dict[str, Any] = message
    return checked


class Encoder:
    """Frames of one session and generation."""

    def __init__(self, session: str, generation: str) -> None:
        self._head = (
            f'{{"version":{VERSION},"session_id":{dump(session)},"generation":{dump(generation)},"message":'
        )

    def frame(self, message: dict[str, Any]) -> bytes:
        """One whole frame.

        Raises `FrameTooLarge`, `TypeError` for a value that JSON does not have, `ValueError` (of which
        `UnicodeEncodeError` is one) for text or numbers that the wire refuses.
        """
        payload = f"{self._head}{dump(message)}}}".encode()
        size = len(payload)
        if size > FRAME_BYTES_MAX:
            raise FrameTooLarge(f"message of {size} bytes, a frame holds {FRAME_BYTES_MAX}")
        return size.to_bytes(4, "big") + payload


class FrameDecoder:
    """Cuts a stream of bytes into payloads. Holds at most one frame and what one read brought beyond it."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """The payloads that are complete now, in order.

        Raises `ProtocolError` as soon as a length is known to be wrong, before anything is kept for it.
        """
        buffer = self._buffer
        buffer += data
        payloads = []
        start = 0
        while len(buffer) - start >= 4:
            size = int.from_bytes(buffer[start : start + 4], "big")
            if not 1 <= size <= FRAME_BYTES_MAX:
                raise ProtocolError(f"frame length {size} is outside 1..{FRAME_BYTES_MAX}")
            end = start + 4 + size
            if len(buffer) < end:
                break
            payloads.append(bytes(buffer[start + 4 : end]))
            start = end
        if start:
            del buffer[:start]
        return payloads

    def is_between_frames(self) -> bool:
        """Whether an end of the stream here cuts no frame."""
        return not self._buffer
