"""How a worker ends: the main thread, when it is free, within a bounded time; else by itself.

`os._exit` and not the interpreter's own end: that one waits for threads that never end.
"""

from __future__ import annotations

import _thread
import os
import sys
import time

from klbr.worker.output import write_raw

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

_GRACE_S = 2.0
_start_thread = _thread.start_new_thread


class Leaving:
    """The decision to end, made once."""

    def __init__(self, poke: Callable[[], None]) -> None:
        self.is_asked = False
        self._status = 0
        self._poke = poke

    def begin(self, status: int, reason: str | None = None) -> None:
        """Asks for the end with `status`. Any thread; the first one decides."""
        if self.is_asked:
            return
        self._status = status
        self.is_asked = True
        if reason is not None:
            write_raw(2, f"klbr.worker: {reason}\n")
        _start_thread(self._leave_anyway, ())
        self._poke()

    def leave_if_asked(self) -> None:
        """Ends the process now if that was asked for, after the exit functions of cells. Main thread."""
        if not self.is_asked:
            return
        import atexit

        try:
            atexit._run_exitfuncs()
            for stream in (sys.__stdout__, sys.__stderr__):
                if stream is not None:
                    stream.flush()
        except BaseException as error:
            write_raw(2, f"klbr.worker: {type(error).__name__} in an exit function\n")
        os._exit(self._status)

    def _leave_anyway(self) -> None:
        time.sleep(_GRACE_S)
        os._exit(self._status)
