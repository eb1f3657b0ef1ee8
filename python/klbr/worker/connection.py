"""The control socket: whole frames out, checked messages in. Bare descriptor calls, no `socket` module."""

from __future__ import annotations

import _thread
import os
import sys

from klbr.protocol import Encoder, FrameDecoder, ProtocolError, decode

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_READ_BYTES = 65_536
_RECURSION_LIMIT = 1_000
_write = os.write
_read = os.read


class Connection:
    """One connected stream socket, for one session and generation."""

    def __init__(self, descriptor: int, session: str, generation: str) -> None:
        self.session = session
        self.generation = generation
        self._descriptor = descriptor
        self._encoder = Encoder(session, generation)
        self._decoder = FrameDecoder()
        self._sending = _thread.allocate_lock()

    def send(self, message: dict[str, Any]) -> None:
        """Sends one message, all of it.

        Raises what `Encoder.frame` raises, before anything is sent, and `OSError` when the host is gone.
        """
        frame = self._encoder.frame(message)
        with self._sending:
            sent = _write(self._descriptor, frame)
            while sent < len(frame):
                sent += _write(self._descriptor, frame[sent:])

    def receive(self, first: bytes, take: Callable[[dict[str, Any]], None]) -> None:
        """Gives every message to `take`, until the host closes the connection between two frames.

        `first` are bytes that were read already. Raises `ProtocolError` for a refused or a cut frame.
        """
        data = first
        while True:
            for payload in self._decoder.feed(data):
                self._deliver(payload, take)
            data = _read(self._descriptor, _READ_BYTES)
            if not data:
                break
        if not self._decoder.is_between_frames():
            raise ProtocolError("connection ended inside a frame")

    def _deliver(self, payload: bytes, take: Callable[[dict[str, Any]], None]) -> None:
        try:
            message = decode(payload, self.session, self.generation)
        except RecursionError:
            # The limit is one for all threads, and a cell may have set it below what decoding takes.
            sys.setrecursionlimit(_RECURSION_LIMIT)
            message = decode(payload, self.session, self.generation)
        try:
            take(message)
        except RecursionError:
            sys.setrecursionlimit(_RECURSION_LIMIT)
            take(message)

    def forget(self) -> None:
        """Closes the descriptor: in a forked child, which must not speak."""
        try:
            os.close(self._descriptor)
        except OSError:
            pass
        self._descriptor = -1
