"""What a cell writes: records with a bound while the cell runs, the raw descriptors before and after.

The scope, a context variable, says whose output it is. It travels into tasks by itself, into threads by the
wrapper here, and into a forked child not at all: a child's text is not the cell's.
"""

from __future__ import annotations

import _thread
import codecs
import io
import os
from _contextvars import ContextVar

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Buffer, Callable  # type: ignore[attr-defined]
    from typing import Any

    from klbr.worker.cell import Cell

TEXT_BYTES_MAX = 65_536
"""Text of all records of one cell together."""
RECORDS_MAX = 256
_CHUNK_CHARACTERS = 65_536

scope: ContextVar[Cell | None] = ContextVar("klbr_scope", default=None)
"""The cell that the running code belongs to."""


def _size(text: str) -> int:
    if text.isascii():
        return len(text)
    return sum(
        len(text[start : start + _CHUNK_CHARACTERS].encode("utf-8", "backslashreplace"))
        for start in range(0, len(text), _CHUNK_CHARACTERS)
    )


def _cut(text: str, room: int) -> tuple[str, int]:
    """The longest start of `text` that fits into `room` bytes, with its size. Surrogates come out escaped."""
    # One character is at least one byte: what lies beyond `room` characters cannot fit.
    data = text[: room + 1].encode("utf-8", "backslashreplace")[:room]
    shown = data.decode("utf-8", "ignore")
    return shown, len(shown.encode())


class Output:
    """The records of one cell: the first 65,536 bytes, the rest counted."""

    def __init__(self) -> None:
        self.truncated_bytes = 0
        self._records: list[tuple[str, list[str]]] = []
        self._room = TEXT_BYTES_MAX
        self._stream = ""
        self._parts: list[str] = []
        self._is_cut = False
        self._closed = False
        # Re-entrant: a finalizer that prints may run inside of `add`.
        self._lock = _thread.RLock()

    def add(self, stream: str, text: str) -> bool:
        """Takes `text` into the record of `stream`; False when the cell has ended."""
        with self._lock:
            if self._closed:
                return False
            if self._is_cut:
                self.truncated_bytes += _size(text)
                return True
            if not text:
                return True
            if stream != self._stream:
                if len(self._records) == RECORDS_MAX:
                    self._is_cut = True
                    self.truncated_bytes += _size(text)
                    return True
                self._stream = stream
                self._parts = []
                self._records.append((stream, self._parts))
            if text.isascii():
                size = len(text)
            elif len(text) <= self._room:
                data = text.encode("utf-8", "backslashreplace")
                size = len(data)
                text = data.decode()
            else:
                size = _size(text)
            if size > self._room:
                text, shown = _cut(text, self._room)
                self.truncated_bytes += size - shown
                self._is_cut = True
                self._room = 0
            else:
                self._room -= size
            self._parts.append(text)
            if len(self._parts) >= 4_096:
                self._parts[:] = ["".join(self._parts)]
            return True

    def close(self) -> list[dict[str, str]]:
        """The records, as the wire has them. From here on `add` refuses."""
        with self._lock:
            self._closed = True
            records = [{"stream": stream, "text": "".join(parts)} for stream, parts in self._records]
            self._records = []
            self._parts = []
        return [record for record in records if record["text"]]


def write_raw(descriptor: int, text: str) -> None:
    """Writes to the real descriptor; a descriptor that a cell has closed swallows the text."""
    data = text.encode("utf-8", "backslashreplace")
    try:
        while data:
            data = data[os.write(descriptor, data) :]
    except OSError:
        pass


class _CellBuffer(io.BufferedIOBase):
    """`sys.stdout.buffer`: bytes become text of the same stream."""

    def __init__(self, stream: CellStream) -> None:
        self._stream = stream
        self._decoder = codecs.getincrementaldecoder("utf-8")("backslashreplace")

    def write(self, data: Buffer, /) -> int:
        if isinstance(data, str):
            raise TypeError("a bytes-like object is required, not 'str'")
        octets = bytes(data)
        self._stream.write(self._decoder.decode(octets))
        return len(octets)

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._stream.fileno()

    def close(self) -> None:
        """Nothing: the stream outlives what a cell does to it."""

    @property
    def raw(self) -> Any:
        return self

    @property
    def name(self) -> str:
        return self._stream.name


class CellStream(io.TextIOBase):
    """`sys.stdout` or `sys.stderr` of a worker."""

    encoding = "utf-8"
    errors = "backslashreplace"
    newlines = None
    line_buffering = True
    write_through = True
    mode = "w"

    def __init__(self, stream: str, descriptor: int) -> None:
        self._name = stream
        self._descriptor = descriptor
        self._buffer: _CellBuffer | None = None

    def write(self, text: str, /) -> int:
        if type(text) is not str:
            if not isinstance(text, str):
                raise TypeError(f"write() argument must be str, not {type(text).__name__}")
            text = str.__str__(text)
        cell = scope.get()
        if cell is None or cell.is_foreign or not cell.output.add(self._name, text):
            write_raw(self._descriptor, text)
        return len(text)

    @property
    def buffer(self) -> _CellBuffer:
        if self._buffer is None:
            self._buffer = _CellBuffer(self)
        return self._buffer

    @property
    def name(self) -> str:
        return f"<{self._name}>"

    def fileno(self) -> int:
        return self._descriptor

    def writable(self) -> bool:
        return True

    def flush(self) -> None:
        """Nothing: no text waits here."""

    def close(self) -> None:
        """Nothing: the stream outlives what a cell does to it."""

    def reconfigure(self, **options: object) -> None:
        """Accepted and ignored: records are Unicode text, there is nothing to configure."""

    def __repr__(self) -> str:
        return f"<klbr {self._name} of the running cell>"


def _carrying(start: Callable[..., Any]) -> Callable[..., Any]:
    def start_thread(function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        cell = scope.get()
        if cell is None or not callable(function):
            return start(function, *arguments, **options)

        def run(*args: Any, **kwargs: Any) -> Any:
            scope.set(cell)
            return function(*args, **kwargs)

        return start(run, *arguments, **options)

    start_thread.__name__ = start_thread.__qualname__ = start.__name__
    start_thread.__doc__ = start.__doc__
    return start_thread


def carry_scope_into_threads() -> None:
    """Threads belong to the cell that started them. To be called before `threading` is imported."""
    for name in ("start_new_thread", "start_new", "start_joinable_thread"):
        start = getattr(_thread, name, None)
        if start is not None:
            setattr(_thread, name, _carrying(start))


def carry_scope_into_pools(module: Any) -> None:
    """A call in a thread pool belongs to the cell that submitted it, not to the one that made the pool."""
    pool = module.ThreadPoolExecutor
    submit = pool.submit

    def scoped_submit(self: Any, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        cell = scope.get()
        if cell is None:
            return submit(self, fn, *args, **kwargs)

        def call(*args: Any, **kwargs: Any) -> Any:
            before = scope.set(cell)
            try:
                return fn(*args, **kwargs)
            finally:
                scope.reset(before)

        return submit(self, call, *args, **kwargs)

    scoped_submit.__name__ = "submit"
    scoped_submit.__doc__ = submit.__doc__
    pool.submit = scoped_submit
