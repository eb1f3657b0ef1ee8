"""The workbench: runs cells one after the other, and asks the host for them.

The main thread runs cells; messages are taken all the time, also while a cell computes.
"""

from __future__ import annotations

import _thread
import builtins
import os
import sys
from _collections import deque  # type: ignore[import-not-found]
from _contextvars import copy_context

from klbr import HostError, TurnYielded
from klbr.protocol import FrameTooLarge, ProtocolError
from klbr.worker import handlers, imports, namespace, sources
from klbr.worker.aio import MainLoop
from klbr.worker.cell import Cell
from klbr.worker.compiling import Compiler, is_coroutine
from klbr.worker.control import Control
from klbr.worker.descriptors import fill_standard
from klbr.worker.interrupts import Interrupts, calls_cells, loop_runners
from klbr.worker.leaving import Leaving
from klbr.worker.output import CellStream, carry_scope_into_pools, carry_scope_into_threads, scope, write_raw

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import CodeType
    from typing import Any

    from klbr.worker.connection import Connection

_CELLS_MAX = 2
"""The cell that runs and one that waits behind it."""
_RECURSION_LIMIT_MIN = 200
_RECURSION_LIMIT = 1_000


def _evaluate(names: dict[str, Any], body: CodeType | None, last: CodeType | None, cell: Cell) -> None:
    if body is not None:
        exec(body, names)
    if last is not None:
        value = eval(last, names)
        if value is not None:
            text = repr(value)
            _show(cell, value, text)


async def _evaluate_async(
    names: dict[str, Any], body: CodeType | None, last: CodeType | None, cell: Cell
) -> None:
    if body is not None:
        if is_coroutine(body):
            await eval(body, names)
        else:
            exec(body, names)
    if last is not None:
        value = eval(last, names)
        if is_coroutine(last):
            value = await value
        if value is not None:
            text = repr(value)
            _show(cell, value, text)


def _show(cell: Cell, value: object, text: str) -> None:
    cell.output.add("result", str.__str__(text))
    builtins._ = value  # type: ignore[attr-defined]


for _function in (_evaluate, _evaluate_async, sources.format_error):
    calls_cells(_function)


class Workbench:
    """State of a workbench. `take` is of the thread that reads, everything else of the main thread."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._interrupts = Interrupts()
        self._names = namespace.prepare()
        self._context = copy_context()
        self._compiler = Compiler()
        self._recursion_limit = sys.getrecursionlimit()
        self._cells = 0
        self._outstanding = 0
        self._counting = _thread.allocate_lock()
        self._queue: deque[Cell] = deque()
        self.control = Control(connection, self.take, self._next, self._on_end)
        self._main_loop = MainLoop(self.control.poke)
        self.leaving = Leaving(self.control.poke)
        self._install()

    def _install(self) -> None:
        imports.install()
        sources.install()
        carry_scope_into_threads()
        imports.after("concurrent.futures.thread", carry_scope_into_pools)
        imports.after("klbr.request", self._on_request_module)
        handlers.guard(lambda: self._interrupts.active is not None, self._on_handler_raised)
        self._main_loop.install()
        sys.stdout = CellStream("stdout", 1)
        sys.stderr = CellStream("stderr", 2)
        os.register_at_fork(after_in_child=self._on_forked)
        self._interrupts.arm()
        namespace.put_working_folder_first()

    # The thread that reads.

    def take(self, message: dict[str, Any]) -> None:
        """Acts on one message of the host; never waits."""
        kind = message["kind"]
        if kind == "execute":
            self._on_execute(message["id"], message["code"])
        elif kind == "host_reply":
            self._on_reply(message)
        elif kind == "interrupt":
            self._on_interrupt(message["id"])
        elif kind == "shutdown":
            self._stop(0, None)
        else:
            raise ProtocolError(f"{kind} is not for a workbench")

    def _on_end(self, reason: str) -> None:
        self._stop(70, reason)

    def _stop(self, status: int, reason: str | None) -> None:
        """Ends the worker, after interrupting the cell that runs. Any thread."""
        cell = self._interrupts.active
        self.leaving.begin(status, reason)
        if cell is not None:
            self._interrupts.interrupt(cell)

    def _on_execute(self, operation: str, code: str) -> None:
        with self._counting:
            is_refused = self._outstanding >= _CELLS_MAX
            if not is_refused:
                self._outstanding += 1
        if is_refused:
            self._complete(
                operation, {"kind": "failed", "error": "a cell runs and another one waits already"}
            )
            return
        self._cells += 1
        self._queue.append(Cell(operation, code, self._cells))
        self.control.poke()

    def _on_interrupt(self, operation: str) -> None:
        active = self._interrupts.active
        for cell in (active, *self._queue):
            if cell is not None and cell.operation == operation:
                self._interrupts.interrupt(cell)
                return

    def _on_reply(self, message: dict[str, Any]) -> None:
        cell = self._interrupts.active
        if cell is None or cell.operation != message["execution_id"]:
            return
        request, result = message["id"], message["result"]
        if request in cell.waits and result["kind"] == "ok":
            cell.has_yielded = True
        pending = cell.pending.pop(request, None)
        if pending is not None:
            self._settle(pending, result)

    def _settle(self, pending: tuple[Any, Any], result: dict[str, Any]) -> None:
        """Answers a request on the loop that waits for it. Any thread."""
        future, loop = pending
        if self.control.is_in_loop(loop):
            _resolve(future, result)
            return
        try:
            loop.call_soon_threadsafe(_resolve, future, result)
        except RuntimeError:
            # A loop that is closed waits for nothing.
            pass

    # Main thread.

    def _on_handler_raised(self, error: BaseException) -> None:
        cell = self._interrupts.active
        if cell is None or cell.queue_cancel is None:
            write_raw(2, sources.format_error(error))
        else:
            cell.broken_by = error
            cell.queue_cancel()

    def serve(self) -> None:
        """Runs cells for ever; the process ends by `leaving`."""
        while True:
            try:
                if self._main_loop.loop is None:
                    self.control.wait()
                else:
                    self.control.run(self._main_loop.living(), self._main_loop.run)
            except BaseException as error:
                # From code of cells that runs between cells, such as a task that raised SystemExit.
                write_raw(2, sources.format_error(error))

    def _next(self) -> None:
        self.leaving.leave_if_asked()
        if self._interrupts.active is not None or not self._queue:
            return
        # Active before it is out of the queue: an interrupt finds it in one place or the other.
        cell = self._interrupts.active = self._queue[0]
        self._queue.popleft()
        self._context.run(self._run, cell)

    def _run(self, cell: Cell) -> None:
        scope.set(cell)
        error: BaseException | None = None
        try:
            self._interrupts.arm()
            if cell.interrupts_asked:
                cell.interrupts_delivered = cell.interrupts_asked
                raise KeyboardInterrupt
            body, last = self._compiler.compile(cell.name, cell.code)
            self._restore_recursion_limit()
            if is_coroutine(body) or is_coroutine(last):
                self._start(cell, body, last)
                return
            _evaluate(self._names, body, last, cell)
        except BaseException as raised:
            error = raised
        self._finish(cell, error)

    def _start(self, cell: Cell, body: CodeType | None, last: CodeType | None) -> None:
        import asyncio

        loop = self._main_loop.living()

        def cancel() -> None:
            cell.cancel_queued_ms = None
            if not cell.has_ended:
                if cell.broken_by is None:
                    cell.interrupts_delivered = cell.interrupts_asked
                task.cancel()

        def on_done(task: asyncio.Task[None]) -> None:
            # Cancelled before its first step: then `_drive` did not run at all.
            if not cell.has_ended:
                error = asyncio.CancelledError() if task.cancelled() else task.exception()
                self._context.run(self._finish, cell, error)

        def queue_cancel() -> None:
            loop.call_soon_threadsafe(cancel)

        cell.queue_cancel = queue_cancel
        task = loop.create_task(self._drive(cell, body, last), context=self._context, name=cell.name)
        task.add_done_callback(on_done)

    async def _drive(self, cell: Cell, body: CodeType | None, last: CodeType | None) -> None:
        error: BaseException | None = None
        try:
            await _evaluate_async(self._names, body, last, cell)
        except BaseException as raised:
            error = raised
        self._finish(cell, error)

    def _restore_recursion_limit(self) -> None:
        if sys.getrecursionlimit() != self._recursion_limit:
            try:
                sys.setrecursionlimit(self._recursion_limit)
            except RecursionError:
                # Too low for where this cell runs. It must be able to run, if only to raise the limit again.
                return

    def _finish(self, cell: Cell, error: BaseException | None) -> None:
        if cell.broken_by is not None and type(error).__name__ == "CancelledError":
            error = cell.broken_by
        self._recursion_limit = limit = sys.getrecursionlimit()
        if limit < _RECURSION_LIMIT_MIN:
            # The worker's own code needs a stack; the cell's limit comes back with the next cell.
            sys.setrecursionlimit(_RECURSION_LIMIT)
        if cell.is_foreign:
            _end_forked(error)
        try:
            result = _result(cell, error)
        except BaseException as fault:
            result = {"kind": "failed", "error": f"{type(fault).__name__} while the cell was closed"}
        error = None
        cell.has_ended = True
        self._interrupts.active = None
        while cell.pending:
            _, pending = cell.pending.popitem()
            self._settle(pending, _SCOPE_EXPIRED)
        fill_standard()
        with self._counting:
            self._outstanding -= 1
        self._complete(cell.operation, result)
        if self._queue or self.leaving.is_asked:
            self.control.poke()

    def _complete(self, operation: str, result: dict[str, Any]) -> None:
        try:
            self._connection.send({"kind": "completed", "id": operation, "result": result})
        except OSError as error:
            self.leaving.begin(70, f"the host is gone: {error}")

    def _on_forked(self) -> None:
        cell = self._interrupts.active
        self._interrupts.disarm()
        if cell is not None:
            cell.is_foreign = True
        self._connection.forget()
        loop = self._main_loop.loop
        if loop is not None and not loop.is_closed() and self._interrupts.is_main_thread():
            # The loop's descriptors are the parent's too: a child must not wait on them.
            loop.call_soon(_end_forked, None)

    # Requests, on the loop of whoever asks.

    def _on_request_module(self, module: Any) -> None:
        module.transport = self._request

    async def _request(self, request: dict[str, Any]) -> Any:
        cell = scope.get()
        if cell is None or cell.has_ended or cell.has_yielded or cell.is_foreign:
            raise HostError("scope_expired", "the cell of this code has ended or yielded")
        from asyncio import get_running_loop

        loop = get_running_loop()
        future = loop.create_future()
        identity = f"r-{next(cell.request_numbers)}"
        is_wait = request["method"] == "runtime.wait"
        if is_wait:
            cell.waits.add(identity)
        cell.pending[identity] = (future, loop)
        message = {
            "kind": "host_request",
            "id": identity,
            "execution_id": cell.operation,
            "request": request,
        }
        try:
            self._connection.send(message)
            self.control.expect()
            result = await future
        except FrameTooLarge as error:
            raise HostError("too_large", str(error)) from None
        except OSError as error:
            raise HostError("unavailable", f"the host is gone: {error}") from None
        finally:
            cell.pending.pop(identity, None)
        if result["kind"] == "error":
            raise HostError(result["code"], result["message"])
        if is_wait:
            raise TurnYielded
        return result["value"]


_SCOPE_EXPIRED = {
    "kind": "error",
    "code": "scope_expired",
    "message": "the cell of this request has ended; its outcome is in the log",
}


def _result(cell: Cell, error: BaseException | None) -> dict[str, Any]:
    """What the host is told of the end of a cell. Closes its output."""
    text = None
    status = cell.status_of(error)
    if error is not None and status != "ok" and not (status == "yielded" and isinstance(error, TurnYielded)):
        text = sources.format_error(error)
        if status == "yielded":
            # The turn is over whatever comes after the wait; what went wrong is still worth seeing.
            cell.output.add("stderr", text)
            text = None
    return {
        "kind": "cell",
        "status": status,
        "output": cell.output.close(),
        "truncated_bytes": cell.output.truncated_bytes,
        "error": text,
    }


def _resolve(future: Any, result: dict[str, Any]) -> None:
    if not future.done():
        future.set_result(result)


def _end_forked(error: BaseException | None) -> None:
    status = 0
    if isinstance(error, SystemExit):
        code = error.code
        status = code if isinstance(code, int) else int(code is not None)
        if isinstance(code, str):
            write_raw(2, code + "\n")
    elif error is not None:
        write_raw(2, sources.format_error(error))
        status = 1
    os._exit(status & 0xFF)


loop_runners.add(Workbench.serve.__code__)
