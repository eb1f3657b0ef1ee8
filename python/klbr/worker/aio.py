"""The event loop of the main thread, made when a cell imports asyncio and not before.

From then on the loop runs between cells, cells run inside of it, and a cell that is not a coroutine sees it
as the running loop too: `asyncio.create_task` works in every cell.
"""

from __future__ import annotations

import _thread

from klbr.worker import imports, interrupts

TYPE_CHECKING = False
if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable
    from typing import Any


class MainLoop:
    """`loop` is None until asyncio is there."""

    def __init__(self, on_loop: Callable[[], None]) -> None:
        self.loop: asyncio.AbstractEventLoop | None = None
        self._module: Any = None
        self._on_loop = on_loop
        self._main = _thread.get_ident()

    def install(self) -> None:
        """Waits for the import of asyncio."""
        imports.after("asyncio", self._on_asyncio)

    def _on_asyncio(self, module: Any) -> None:
        self._module = module
        module.run = self._nesting_run(module.run)
        loop = module.new_event_loop()
        if _thread.get_ident() == self._main:
            module.set_event_loop(loop)
            if module._get_running_loop() is None:
                module._set_running_loop(loop)
        self.loop = loop
        self._on_loop()

    def _nesting_run(self, run: Callable[..., Any]) -> Callable[..., Any]:
        """`asyncio.run` for a cell that is not a coroutine: it has no task, so its loop can be put aside."""

        def run_beside(main: Any, **options: Any) -> Any:
            module, loop = self._module, self.loop
            if loop is None or module._get_running_loop() is not loop or module.current_task() is not None:
                return run(main, **options)
            module._set_running_loop(None)
            try:
                return run(main, **options)
            finally:
                module.set_event_loop(loop)
                module._set_running_loop(loop)

        def asyncio_run(main: Any, *, debug: bool | None = None, **options: Any) -> Any:
            return run_beside(main, debug=debug, **options)

        interrupts.transparent.update({run_beside.__code__, asyncio_run.__code__})
        asyncio_run.__name__ = asyncio_run.__qualname__ = "run"
        asyncio_run.__doc__ = run.__doc__
        return asyncio_run

    def living(self) -> asyncio.AbstractEventLoop:
        """The loop, or a new one in place of one that a cell has closed. After the import of asyncio only."""
        if self.loop is None or self.loop.is_closed():
            new: asyncio.AbstractEventLoop = self._module.new_event_loop()
            self.loop = new
        return self.loop

    def run(self) -> None:
        """Runs the loop until something stops it, which nothing of the worker does. Main thread only."""
        loop, module = self.living(), self._module
        module._set_running_loop(None)
        module.set_event_loop(loop)
        loop.run_forever()


interrupts.loop_runners.add(MainLoop.run.__code__)
