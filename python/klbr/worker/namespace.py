"""The namespace of the cells, which is that of `__main__`, and the built-in names that differ in a worker."""

from __future__ import annotations

import _thread
import _warnings
import builtins
import sys
from types import ModuleType

import klbr
from klbr.worker import imports

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class _Unloaded(ModuleType):
    """A request module whose file is read when somebody looks inside."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name not in ("__all__", "__path__"):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        _load(self)
        return getattr(self, name)

    def __dir__(self) -> list[str]:
        _load(self)
        return dir(self)

    @property
    def __doc__(self) -> str | None:  # type: ignore[override]
        _load(self)
        return self.__doc__

    def __repr__(self) -> str:
        return f"<module {self.__name__!r}>"


def _load(module: ModuleType) -> None:
    spec = module.__spec__
    assert spec is not None and spec.loader is not None
    module.__class__ = ModuleType
    try:
        spec.loader.exec_module(module)
    except BaseException:
        module.__class__ = _Unloaded
        raise


def _request_modules() -> dict[str, ModuleType]:
    from importlib.machinery import ModuleSpec, SourceFileLoader

    folder = klbr.__path__[0]
    modules: dict[str, ModuleType] = {}
    for name in klbr.REQUEST_MODULES:
        full_name = f"klbr.{name}"
        path = f"{folder}/{name}.py"
        loader = SourceFileLoader(full_name, path)
        spec = ModuleSpec(full_name, loader, origin=path)
        spec.has_location = True
        module = _Unloaded(full_name)
        module.__dict__.update(__spec__=spec, __loader__=loader, __file__=path, __package__="klbr")
        sys.modules[full_name] = module
        setattr(klbr, name, module)
        modules[name] = module
    return modules


class _Exit:
    """`exit` and `quit`: they end the cell."""

    def __call__(self, code: object = None) -> None:
        raise SystemExit(code)

    def __repr__(self) -> str:
        return "exit() ends the cell; the worker and its names stay"


class _Help:
    def __call__(self, *arguments: Any, **options: Any) -> Any:
        import pydoc

        return pydoc.help(*arguments, **options)

    def __repr__(self) -> str:
        return "help(object) describes an object; klbr.help() what a cell can do"


def _no_terminal(prompt: str = "Password: ", stream: Any = None, **options: Any) -> str:
    raise EOFError("there is nobody to ask: a cell has no terminal")


class _OnlyTheControlThread:
    """Matches Python's warning of a fork beside threads, where the one thread is the worker's own."""

    @staticmethod
    def match(text: str) -> bool:
        return "is multi-threaded, use of " in text and _thread._count() <= 1


def _on_getpass(module: Any) -> None:
    # The original opens /dev/tty, and would wait there where the host was started from a terminal.
    module.getpass = module.unix_getpass = module.fallback_getpass = _no_terminal


def prepare() -> dict[str, Any]:
    """Empties `__main__`, fills in what cells find there, and returns its dictionary."""
    namespace = sys.modules["__main__"].__dict__
    namespace.clear()
    namespace.update(
        __name__="__main__",
        __doc__=None,
        __package__=None,
        __loader__=None,
        __spec__=None,
        __builtins__=builtins,
        klbr=klbr,
        **_request_modules(),
    )
    sys.argv = [""]
    # The filter's own function would compile a regular expression.
    fork_warning: Any = ("ignore", _OnlyTheControlThread, DeprecationWarning, None, 0)
    _warnings.filters.insert(0, fork_warning)
    place: Any = builtins
    place.exit = place.quit = _Exit()
    place.help = _Help()
    imports.after("getpass", _on_getpass)
    return namespace


def put_working_folder_first() -> None:
    """Cells import from the working folder, as in Python's own shell: the worker's own imports are done."""
    if not sys.flags.safe_path and sys.path:
        del sys.path[0]
    sys.path.insert(0, "")
