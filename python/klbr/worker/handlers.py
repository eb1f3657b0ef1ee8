"""Signal handlers that cells install: they run in code of cells and in event loops, never in worker code.

A handler may raise wherever the main thread is. In the worker's code that would lose a message or cut one
in two, so there the signal comes again a little later. What it raises while a loop waits would lose what the
loop was about to do: there the cell's task is cancelled for it. Between cells it is shown.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import _thread
import time

from klbr.worker import imports, interrupts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType
    from typing import Any

_start_thread = _thread.start_new_thread
_LATER_S = 0.001


def guard(is_executing: Callable[[], bool], on_raised: Callable[[BaseException], None]) -> None:
    """Guards the handlers that are installed from now on. Main thread only.

    `is_executing` says whether a cell runs; `on_raised` gets what a handler raised outside of code of cells.
    """
    main = _thread.get_ident()
    coming_again: set[int] = set()

    installing = _thread.allocate_lock()

    def come_again(signum: int, handler: Any) -> None:
        time.sleep(_LATER_S)
        coming_again.discard(signum)
        with installing:
            # Another handler, or none, was not there when the signal came.
            if _signal.getsignal(signum) is handler:
                _signal.pthread_kill(main, signum)

    def guarded(handler: Callable[[int, FrameType | None], Any]) -> Callable[[int, FrameType | None], Any]:
        def in_cells_code(signum: int, frame: FrameType | None) -> None:
            place = interrupts.place_of(frame)
            if place == "worker" and is_executing():
                if signum not in coming_again:
                    coming_again.add(signum)
                    _start_thread(come_again, (signum, in_cells_code))
                return
            try:
                handler(signum, frame)
            except BaseException as error:
                if place == "cell":
                    raise
                on_raised(error)

        interrupts.transparent.add(in_cells_code.__code__)
        in_cells_code.__wrapped__ = handler  # type: ignore[attr-defined]
        return in_cells_code

    def installed(handler: Any) -> Any:
        return getattr(handler, "__wrapped__", handler)

    def on_signal_module(module: Any) -> None:
        install, get, default = module.signal, module.getsignal, module.default_int_handler

        def signal(signalnum: Any, handler: Any) -> Any:
            is_own = callable(handler) and handler is not default and not isinstance(handler, int)
            with installing:
                return installed(install(signalnum, guarded(handler) if is_own else handler))

        def getsignal(signalnum: Any) -> Any:
            return installed(get(signalnum))

        signal.__doc__, getsignal.__doc__ = install.__doc__, get.__doc__
        module.signal, module.getsignal = signal, getsignal

    imports.after("signal", on_signal_module)
