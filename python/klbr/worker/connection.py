"""The control socket: whole frames out. Bare descriptor calls, no `socket` module."""

from __future__ import annotations

import _thread
import os

from klbr.protocol import Encoder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_write = os.write


class Connection:
    """One connected stream socket, for one session and generation."""

    def __init__(self, descriptor: int, session: str, generation: str) -> None:
        self.session = session
        self.generation = generation
        self.descriptor = descriptor
        self._encoder = Encoder(session, generation)
        self._sending = _thread.allocate_lock()

    def send(self, message: dict[str, Any]) -> None:
        """Sends one message, all of it.

        Raises what `Encoder.frame` raises, before anything is sent, and `OSError` when the host is gone.
        """
        frame = self._encoder.frame(message)
        with self._sending:
            sent = _write(self.descriptor, frame)
            while sent < len(frame):
                sent += _write(self.descriptor, frame[sent:])

    def forget(self) -> None:
        """Closes the descriptor: in a forked child, which must not speak."""
        try:
            os.close(self.descriptor)
        except OSError:
            pass
        self.descriptor = -1
