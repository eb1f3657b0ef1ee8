"""Interrupting the cell that runs, and nothing else.

The control thread asks; a real signal makes the main thread look at its own stack, which breaks off
blocking system calls too. The stack decides: code of the cell gets KeyboardInterrupt, an event loop that
waits gets the cell's task cancelled, and code of the worker is left alone: the signal comes again later.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import _thread
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import CodeType, FrameType

    from klbr.worker.cell import Cell

_start_thread = _thread.start_new_thread
_WORKER_FOLDER = __file__.rpartition("/worker/")[0] + "/"
_BLOCKED_LOOP_MS = 200
"""How long a cancellation may lie in the loop's queue before the callback in its way is broken off."""
_ATTEMPTS_MAX = 2_000

entry_points: set[CodeType] = set()
"""Worker functions that call code of cells: what runs above them is not the worker's."""
transparent: set[CodeType] = set()
"""Worker functions that cells call and that call back: they are looked through."""
loop_runners: set[CodeType] = set()
"""Worker functions that run an event loop."""


def _place(frame: FrameType | None) -> tuple[str, bool]:
    """Where the main thread is: "cell", "loop" or "worker"; and whether a callback of the loop runs."""
    seen = in_callback = False
    while frame is not None:
        code = frame.f_code
        if not code.co_filename.startswith(_WORKER_FOLDER):
            seen = True
            if code.co_name == "_run" and code.co_filename.endswith("asyncio/events.py"):
                in_callback = True
        elif code in entry_points:
            return ("cell" if seen else "worker"), in_callback
        elif code in loop_runners:
            return "loop", in_callback
        elif code not in transparent:
            return "worker", in_callback
        frame = frame.f_back
    return "worker", in_callback


def place_of(frame: FrameType | None) -> str:
    """Where the main thread is: "cell", "loop" or "worker"."""
    return _place(frame)[0]


class Interrupts:
    """One for a worker. `active` is the cell whose code may be hit."""

    def __init__(self) -> None:
        self.active: Cell | None = None
        self._main = _thread.get_ident()
        self._asked: Cell | None = None
        self._break_loop = False

    def arm(self) -> None:
        """Puts the handler (back) in place; a cell may have installed its own. Main thread only."""
        _signal.signal(_signal.SIGINT, self._on_signal)

    def disarm(self) -> None:
        """Gives SIGINT its ordinary meaning back: in a forked child, which the host cannot reach."""
        self.active = None
        _signal.signal(_signal.SIGINT, _signal.default_int_handler)

    def is_main_thread(self) -> bool:
        """Whether the caller is the thread that runs cells."""
        return _thread.get_ident() == self._main

    def interrupt(self, cell: Cell) -> None:
        """Interrupts `cell` unless it has ended. Control thread; returns at once."""
        cell.interrupts_asked += 1
        if not cell.is_being_interrupted:
            cell.is_being_interrupted = True
            _start_thread(self._deliver, (cell,))

    def _deliver(self, cell: Cell) -> None:
        pause = 0.002
        try:
            for _ in range(_ATTEMPTS_MAX):
                if cell.has_ended or cell.interrupts_delivered >= cell.interrupts_asked:
                    break
                if self.active is cell:
                    self._asked = cell
                    _signal.pthread_kill(self._main, _signal.SIGINT)
                time.sleep(pause)
                pause = min(pause * 1.5, 0.05)
                queued = cell.cancel_queued_ms
                self._break_loop = queued is not None and _now_ms() - queued > _BLOCKED_LOOP_MS
        finally:
            self._break_loop = False
            cell.is_being_interrupted = False

    def _on_signal(self, _signum: int, frame: FrameType | None) -> None:
        cell, self._asked = self._asked, None
        place, in_callback = _place(frame)
        if cell is None:
            # Not from the host: the cell sent the signal itself, or somebody outside did.
            if place == "cell" and self.active is not None:
                raise KeyboardInterrupt
            return
        if cell is not self.active:
            return
        if place == "cell":
            cell.interrupts_delivered = cell.interrupts_asked
            raise KeyboardInterrupt
        if place == "loop":
            if self._break_loop and in_callback:
                raise KeyboardInterrupt
            if cell.cancel_queued_ms is None and cell.queue_cancel is not None:
                cell.cancel_queued_ms = _now_ms()
                cell.queue_cancel()


def _now_ms() -> float:
    return time.monotonic() * 1e3


def calls_cells(function: Callable[..., object]) -> None:
    """Marks a worker function that calls code of cells."""
    entry_points.add(function.__code__)
