"""What a cell can ask of its host, and the worker that runs cells.

Every host request `a.b` is the coroutine function `klbr.a.b`: `await klbr.local.send("hello")`. A request
that the host refuses raises `HostError`. `klbr.help()` prints a short guide.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType

REQUEST_MODULES = (
    "agents",
    "behavior",
    "evidence",
    "frontier",
    "hooks",
    "local",
    "maintenance",
    "orientation",
    "peer",
    "remote",
    "runtime",
    "skills",
    "workspace",
)
"""The modules whose functions are host requests."""

__all__ = ["HostError", "TurnYielded", "help", *REQUEST_MODULES]


class HostError(Exception):
    """The host refused a request.

    `code` is one of the closed set of klbr-protocol(7), for a program to act on; `message` is for a reader.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(code, message)
        self.code = code
        self.message = message

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"


class TurnYielded(BaseException):
    """Ends a cell whose `runtime.wait` was accepted. Not an `Exception`: let it pass."""


def help() -> None:
    """Prints a short guide of what a cell can do."""
    from klbr.guide import TEXT

    print(TEXT, end="")


def __getattr__(name: str) -> ModuleType:
    if name not in REQUEST_MODULES:
        raise AttributeError(f"module 'klbr' has no attribute {name!r}")
    # Not importlib: it is not needed for what the import statement does by itself.
    __import__(f"klbr.{name}")
    import sys

    return sys.modules[f"klbr.{name}"]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
