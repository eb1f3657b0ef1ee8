"""From the command line to a worker that serves: options, token, connection, hello."""

from __future__ import annotations

import _thread
import os
import sys

from klbr.protocol import ProtocolError
from klbr.worker import descriptors
from klbr.worker.connection import Connection
from klbr.worker.options import USAGE, OptionError, Options, from_arguments, from_line

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

    from klbr.worker.policy import PolicyWorker
    from klbr.worker.workbench import Workbench

EXIT_USAGE = 64
EXIT_FAULT = 70
_TOKEN_BYTES_MAX = 4_096
_LINE_BYTES_MAX = 65_536
_REVISION_BYTES_MAX = 256


class StartError(Exception):
    """The worker cannot begin."""


def main() -> NoReturn:
    """Runs a worker with the arguments of the process; ends the process."""
    descriptors.fill_standard()
    try:
        if sys.argv[1:] == ["--inherited"]:
            options, token, descriptor, rest = _inherit()
        else:
            options = from_arguments(sys.argv[1:])
            token = _take_token(options.token_file or "")
            descriptor, rest = _connect(options.socket or ""), b""
        descriptors.silence_input()
        if sys.stdin is None:
            sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
        _serve(options, token, Connection(descriptor, options.session, options.generation), rest)
    except OptionError as error:
        _end(EXIT_USAGE, f"{error}\n{USAGE}")
    except (StartError, ProtocolError, OSError) as error:
        _end(EXIT_FAULT, f"{error}\n")
    except BaseException as error:
        from klbr.worker.sources import format_error

        _end(EXIT_FAULT, format_error(error))


def _end(status: int, reason: str) -> NoReturn:
    os.write(2, f"klbr.worker: {reason}".encode("utf-8", "backslashreplace"))
    os._exit(status)


def _inherit() -> tuple[Options, str, int, bytes]:
    received = b""
    while b"\n" not in received:
        if len(received) > _LINE_BYTES_MAX:
            raise OptionError(f"first line is longer than {_LINE_BYTES_MAX} bytes")
        data = os.read(0, 4_096)
        if not data:
            raise StartError("the connection ended before its first line")
        received += data
    line, _, rest = received.partition(b"\n")
    options, token = from_line(line)
    return options, token, descriptors.move_high(os.dup(0)), rest


def _take_token(path: str) -> str:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        token = os.read(descriptor, _TOKEN_BYTES_MAX + 1)
    finally:
        os.close(descriptor)
    # Before connecting: whoever sees the connection knows that the file is gone.
    os.unlink(path)
    text = token.decode("utf-8", "replace").strip()
    if not text or len(token) > _TOKEN_BYTES_MAX:
        raise StartError(f"token file {path} is empty or longer than {_TOKEN_BYTES_MAX} bytes")
    return text


def _connect(path: str) -> int:
    # The C module alone: `socket` brings along enumerations and selectors.
    import _socket

    connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    try:
        connection.connect(path)
    except OSError as error:
        raise StartError(f"cannot connect to {path}: {error.strerror}") from None
    return descriptors.move_high(connection.detach())


def _skills_revision(folder: str | None) -> str | None:
    """Text of the file `revision` in the folder of the skills; None where there is none."""
    if folder is None:
        return None
    try:
        descriptor = os.open(f"{folder}/revision", os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        return os.read(descriptor, _REVISION_BYTES_MAX).decode("utf-8", "replace").strip() or None
    finally:
        os.close(descriptor)


def _serve(options: Options, token: str, connection: Connection, rest: bytes) -> NoReturn:
    worker: Workbench | PolicyWorker
    revision: str | None = None
    slots: tuple[str, ...] = ()
    if options.role == "hooks":
        from klbr.vocabulary import SLOTS
        from klbr.worker.policy import PolicyWorker

        worker = PolicyWorker(connection, options.release or "")
        revision, slots = worker.revision, SLOTS
    else:
        from klbr.worker.workbench import Workbench

        worker = Workbench(connection)
    connection.send(
        {
            "kind": "hello",
            "token": token,
            "role": options.role,
            "revision": revision,
            "slots": list(slots),
            "skills_revision": _skills_revision(options.skills),
        }
    )
    if rest:
        worker.control.feed(rest)
    _thread.start_new_thread(worker.control.watch, ())
    while True:
        worker.serve()
