"""Descriptors 0, 1 and 2, and a place for the control socket where no closed standard stream can put it."""

from __future__ import annotations

import os

_HIGH = (900, 200, 60)


def fill_standard() -> None:
    """Opens /dev/null in place of a missing standard descriptor: the next file opened would land there."""
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            # The lowest free one: those below are open or were just filled.
            opened = os.open("/dev/null", os.O_RDWR)
            if opened != descriptor:
                os.dup2(opened, descriptor)
                os.close(opened)
            os.set_inheritable(descriptor, True)


def silence_input() -> None:
    """Makes descriptor 0 an empty file: there is nobody at a worker's standard input."""
    opened = os.open("/dev/null", os.O_RDONLY)
    if opened != 0:
        os.dup2(opened, 0)
        os.close(opened)
    else:
        os.set_inheritable(0, True)


def move_high(descriptor: int) -> int:
    """The same open file under a high number, closed when a program is executed; the low number is closed."""
    for number in _HIGH:
        try:
            os.fstat(number)
        except OSError:
            try:
                os.dup2(descriptor, number, inheritable=False)
            except OSError:
                continue
            os.close(descriptor)
            return number
    os.set_inheritable(descriptor, False)
    return descriptor
