"""The hook worker: asks the handlers of one release. A handler has no host scope.

Plain handlers run one after the other in the order of their calls; `async` ones run side by side.
"""

from __future__ import annotations

import sys
from _collections import deque  # type: ignore[import-not-found]

from klbr import policy
from klbr.protocol import FrameTooLarge, ProtocolError
from klbr.vocabulary import INTEGER_MAX
from klbr.worker import sources
from klbr.worker.control import Control
from klbr.worker.leaving import Leaving
from klbr.worker.release import ReleaseError, identity, load

TYPE_CHECKING = False
if TYPE_CHECKING:
    import asyncio
    from typing import Any

    from klbr.worker.connection import Connection

ERROR_BYTES_MAX = 8_192


class PolicyWorker:
    """State of a hook worker. `take` is of the thread that reads, everything else of the main thread."""

    def __init__(self, connection: Connection, release: str) -> None:
        from klbr.worker.start import StartError

        self._connection = connection
        sys.argv = [""]
        if not sys.flags.safe_path and sys.path:
            # The working folder: policy is what the release says, not what lies around.
            del sys.path[0]
        try:
            self.revision = identity(release)
            self._handlers = load(release)
        except ReleaseError as error:
            raise StartError(f"release {release}: {error}") from error
        self._loop: asyncio.AbstractEventLoop | None = None
        """Made by the first handler that is `async`, and from then on the main thread runs it."""
        self._asked: deque[dict[str, Any]] = deque()
        self._calls: dict[str, asyncio.Task[None]] = {}
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]
        self.control = Control(connection, self.take, self._turn, self._on_end)
        self.leaving = Leaving(self.control.poke)

    def _on_end(self, reason: str) -> None:
        self.leaving.begin(70, reason)

    def take(self, message: dict[str, Any]) -> None:
        """Acts on one message of the host. The thread that reads."""
        kind = message["kind"]
        if kind in ("invoke", "interrupt"):
            self._asked.append(message)
            self.control.poke()
        elif kind == "shutdown":
            self.leaving.begin(0)
        elif kind != "host_reply":
            raise ProtocolError(f"{kind} is not for a hook worker")

    def serve(self) -> None:
        """Answers calls for ever; the process ends by `leaving`."""
        try:
            if self._loop is None:
                self.control.wait()
            else:
                self.control.run(self._loop, self._loop.run_forever)
        except BaseException as error:
            # A task that a handler left behind raised SystemExit or KeyboardInterrupt.
            sys.stderr.write(sources.format_error(error))

    def _turn(self) -> None:
        self.leaving.leave_if_asked()
        while self._asked:
            message = self._asked.popleft()
            if message["kind"] == "invoke":
                self._invoke(message["id"], message["slot"], message["input"])
            elif (task := self._calls.get(message["id"])) is not None:
                task.cancel()

    def _invoke(self, operation: str, slot: str, fields: Any) -> None:
        try:
            request = _request(slot, fields)
            context = policy.HookContext(
                self._connection.session, self._connection.generation, operation, slot, self.revision
            )
            answer = self._handlers[slot](request, context)
        except BaseException as error:
            self._fail(operation, error)
            return
        if hasattr(type(answer), "__await__"):
            task = self._running_loop().create_task(self._wait(operation, slot, answer))
            self._calls[operation] = task
            task.add_done_callback(lambda _task: self._calls.pop(operation, None))
        else:
            self._answer(operation, slot, answer)

    async def _wait(self, operation: str, slot: str, answer: Any) -> None:
        try:
            decision = await answer
        except BaseException as error:
            self._fail(operation, error)
            return
        self._answer(operation, slot, decision)

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            import asyncio

            self._loop = asyncio.new_event_loop()
            asyncio.set_event_loop(self._loop)
        return self._loop

    def _answer(self, operation: str, slot: str, decision: object) -> None:
        try:
            value = _value(slot, decision)
        except BaseException as error:
            self._fail(operation, error)
            return
        self._complete(operation, {"kind": "hook", "value": value})

    def _fail(self, operation: str, error: BaseException) -> None:
        text = sources.bounded(sources.format_error(error), ERROR_BYTES_MAX)
        self._complete(operation, {"kind": "failed", "error": text})

    def _complete(self, operation: str, result: dict[str, Any]) -> None:
        message = {"kind": "completed", "id": operation, "result": result}
        try:
            self._connection.send(message)
        except (FrameTooLarge, ValueError) as error:
            message["result"] = {"kind": "failed", "error": f"{type(error).__name__} in the answer"}
            self._connection.send(message)
        except OSError as error:
            self.leaving.begin(70, f"the host is gone: {error}")


def _request(slot: str, fields: Any) -> policy.AttentionRequest | policy.DeliveryRequest:
    if slot == "attention.plan":
        _check(fields, {"event_id": int, "source": str, "received_at_ms": int})
        if not 0 < fields["event_id"] <= INTEGER_MAX or not 0 <= fields["received_at_ms"] <= INTEGER_MAX:
            raise ValueError("event_id is positive and received_at_ms is not negative")
        return policy.AttentionRequest(**fields)
    _check(fields, {"effect_id": str, "destination": str, "text": str})
    return policy.DeliveryRequest(**fields)


def _check(fields: Any, shape: dict[str, type]) -> None:
    if not isinstance(fields, dict) or fields.keys() != shape.keys():
        raise ValueError(f"input has other fields than {', '.join(shape)}")
    for name, kind in shape.items():
        if type(fields[name]) is not kind:
            raise ValueError(f"{name} of the input is not of the type {kind.__name__}")


def _value(slot: str, decision: object) -> dict[str, Any]:
    if slot == "attention.plan":
        match decision:
            case policy.Wake(priority):
                return {"action": "wake", "priority": priority}
            case policy.Defer(seconds):
                return {"action": "defer", "seconds": seconds}
            case policy.Ignore(reason):
                return {"action": "ignore", "reason": reason}
        raise TypeError(f"attention.plan answers with Wake, Defer or Ignore, not {type(decision).__name__}")
    match decision:
        case policy.Allow():
            return {"action": "allow"}
        case policy.Hold(reason):
            return {"action": "hold", "reason": reason}
    raise TypeError(f"delivery.review answers with Allow or Hold, not {type(decision).__name__}")
