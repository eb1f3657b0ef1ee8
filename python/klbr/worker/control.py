"""Reading the control socket, by whichever thread is free.

The main thread reads while it waits for something to do: then no other thread has to be woken on the way of
a message. The control thread watches, and takes over as soon as a message lies unread because a cell computes
or blocks. Messages are taken in their order, one at a time.

Right after a message the main thread looks for the next one for some microseconds before it sleeps: being
woken on another processor costs more than most answers of the host take.
"""

from __future__ import annotations

import _thread
import os
import select
import sys
import time

from klbr.protocol import FrameDecoder, ProtocolError, decode
from klbr.worker.interrupts import transparent

TYPE_CHECKING = False
if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable
    from typing import Any

    from klbr.worker.connection import Connection

_READ_BYTES = 65_536
_PATIENCE_S = 0.005
"""How long a message may lie unread before the control thread takes it."""
_LINGER_S = 0.000_12
"""How long the main thread looks for the next message before it sleeps."""
_RECURSION_LIMIT = 1_000
_QUIET_LOOKS = 40
"""Looks at a quiet socket before the control thread sleeps until there is something."""

_sleep = time.sleep
_clock = time.perf_counter
_read = os.read


class Control:
    """One for a worker. `take` gets each message; `turn` is what the main thread does after messages."""

    def __init__(
        self,
        connection: Connection,
        take: Callable[[dict[str, Any]], None],
        turn: Callable[[], None],
        on_end: Callable[[str], None],
    ) -> None:
        self._connection = connection
        self._take = take
        self._turn = turn
        self._on_end = on_end
        self._decoder = FrameDecoder()
        self._main = _thread.get_ident()
        self._reading = _thread.allocate_lock()
        self._readable = select.poll()
        self._readable.register(connection.descriptor, select.POLLIN)
        self._reads = 0
        self._thread_reads = False
        self._is_main_reading = False
        self._linger_s = _LINGER_S if len(os.sched_getaffinity(0)) > 1 else 0.0
        """None on a single processor: the host could not run meanwhile."""
        self._is_lively = False
        """A message has just gone or come: the next one may be near."""
        self._has_ended = False
        self._waiting = select.poll()
        self._waiting.register(connection.descriptor, select.POLLIN)
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._waiting.register(self._wake, select.POLLIN)
        self._loop: asyncio.AbstractEventLoop | None = None
        """The loop that the main thread runs, while it does."""
        self._watched: asyncio.AbstractEventLoop | None = None
        """The loop that looks at the socket."""

    # Any thread.

    def poke(self) -> None:
        """Makes the main thread take a turn."""
        loop = self._loop
        on_main = _thread.get_ident() == self._main
        if on_main and self._is_main_reading:
            # It takes one anyway.
            return
        if loop is None:
            os.eventfd_write(self._wake, 1)
        elif on_main:
            loop.call_soon(self._turn)
        else:
            try:
                loop.call_soon_threadsafe(self._turn)
            except RuntimeError:
                # Closed by a cell: the main thread makes another one and looks by itself.
                return

    def expect(self) -> None:
        """Says that a message was sent that the host answers."""
        self._is_lively = True

    def is_in_loop(self, loop: object) -> bool:
        """Whether the caller is the main thread, in this loop of its own."""
        return loop is self._loop and _thread.get_ident() == self._main

    def feed(self, data: bytes) -> None:
        """Takes the messages that `data` completes; the end of the connection is empty."""
        with self._reading:
            self._feed(data)

    def _feed(self, data: bytes) -> None:
        try:
            if not data:
                if not self._decoder.is_between_frames():
                    raise ProtocolError("connection ended inside a frame")
                self._end("the host closed the connection")
            for payload in self._decoder.feed(data):
                self._deliver(payload)
        except BaseException as error:
            self._end(f"connection failed: {type(error).__name__}: {error}")

    def _deliver(self, payload: bytes) -> None:
        session, generation = self._connection.session, self._connection.generation
        try:
            message = decode(payload, session, generation)
        except RecursionError:
            # The limit is one for all threads, and a cell may have set it below what decoding takes.
            sys.setrecursionlimit(_RECURSION_LIMIT)
            message = decode(payload, session, generation)
        try:
            self._take(message)
        except RecursionError:
            sys.setrecursionlimit(_RECURSION_LIMIT)
            self._take(message)

    def _end(self, reason: str) -> None:
        if not self._has_ended:
            self._has_ended = True
            self._on_end(reason)

    def _read_now(self) -> None:
        """Takes what can be read without waiting."""
        with self._reading:
            if not self._has_ended and self._readable.poll(0):
                self._reads += 1
                try:
                    data = _read(self._connection.descriptor, _READ_BYTES)
                except OSError as error:
                    self._end(f"connection failed: {error}")
                    return
                self._feed(data)

    # Control thread.

    def watch(self) -> None:
        """Reads whatever the main thread leaves unread, until the connection ends."""
        poller = select.poll()
        poller.register(self._connection.descriptor, select.POLLIN)
        while not self._has_ended:
            poller.poll()
            if self._thread_reads:
                self._read_now()
            else:
                self._watch_main(poller)

    def _watch_main(self, poller: select.poll) -> None:
        quiet, seen = 0, self._reads
        while quiet < _QUIET_LOOKS and not self._has_ended:
            _sleep(_PATIENCE_S)
            if self._reads != seen:
                quiet, seen = 0, self._reads
            elif poller.poll(0):
                # It is busy, and stays so for all that is known: it says when it is back.
                self._thread_reads = True
                self._read_now()
                return
            else:
                quiet += 1

    # Main thread.

    def wait(self) -> None:
        """Waits for a message or a poke, and takes a turn. For a main thread that runs no loop."""
        for descriptor, _ in self._linger(lambda: self._waiting.poll(0)) or self._waiting.poll():
            if descriptor == self._wake:
                os.eventfd_read(self._wake)
        self._on_readable()

    def run(self, loop: asyncio.AbstractEventLoop, run: Callable[[], None]) -> None:
        """Runs `loop`, which takes a turn first, and then at each message and poke, by calling `run`."""
        if self._watched is not loop:
            loop.add_reader(self._connection.descriptor, self._on_readable)
            self._watched = loop
            self._linger_in(loop)
        self._loop = loop
        # Whatever came while this was not the loop yet.
        loop.call_soon(self._turn)
        try:
            run()
        finally:
            self._loop = None

    def _linger_in(self, loop: asyncio.AbstractEventLoop) -> None:
        selector = getattr(loop, "_selector", None)
        if selector is None:
            # Another kind of loop, which a cell has asked for: it waits in its own way.
            return
        select_once = selector.select

        def select_lively(timeout: float | None = None) -> Any:
            if self._is_lively and (timeout is None or timeout > self._linger_s):
                events = self._linger(lambda: select_once(0))
                if events:
                    return events
            return select_once(timeout)

        transparent.add(select_lively.__code__)
        selector.select = select_lively

    def _linger(self, look: Callable[[], Any]) -> Any:
        """What `look` finds soon, if there is reason to look."""
        if not self._is_lively:
            return None
        self._is_lively = False
        end = _clock() + self._linger_s
        while True:
            events = look()
            if events or _clock() > end:
                return events

    def _on_readable(self) -> None:
        self._thread_reads = False
        self._is_lively = True
        self._is_main_reading = True
        try:
            self._read_now()
        finally:
            self._is_main_reading = False
        self._turn()
