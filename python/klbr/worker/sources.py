"""Cell source by cell name, for tracebacks and `inspect`; and the error text of a cell.

`linecache`, `inspect` and `traceback` are heavy: they are taught about cells when somebody imports them.
"""

from __future__ import annotations

from klbr.worker import imports

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

ERROR_BYTES_MAX = 65_536
_KEPT_CHARACTERS_MAX = 8_000_000
_FOLDER = __file__.rpartition("/worker/")[0] + "/"

_sources: dict[str, str] = {}
_kept_characters = 0
_linecache: Any = None


def keep(name: str, code: str) -> None:
    """Remembers the source of a cell; the oldest are forgotten beyond 8,000,000 characters."""
    global _kept_characters
    _sources[name] = code
    _kept_characters += len(code)
    if _linecache is not None:
        _enter(name, code)
    while _kept_characters > _KEPT_CHARACTERS_MAX and len(_sources) > 1:
        oldest = next(iter(_sources))
        _kept_characters -= len(_sources.pop(oldest))
        if _linecache is not None:
            _linecache.cache.pop(oldest, None)


def _enter(name: str, code: str) -> None:
    # A modification time of None is how linecache marks an entry that no file stands behind.
    lines = [line + "\n" for line in code.split("\n")]
    _linecache.cache[name] = (len(code), None, lines, name)


def _on_linecache(module: Any) -> None:
    global _linecache
    _linecache = module
    for name, code in _sources.items():
        _enter(name, code)


def _cell_of_class(cls: type) -> str | None:
    import ast

    def has(body: list[ast.stmt], names: list[str]) -> bool:
        for node in body:
            if isinstance(node, ast.ClassDef) and node.name == names[0]:
                return len(names) == 1 or has(node.body, names[1:])
            for inner in (getattr(node, field, None) for field in ("body", "orelse", "finalbody")):
                if isinstance(inner, list) and not isinstance(node, ast.ClassDef) and has(inner, names):
                    return True
        return False

    names = [name for name in cls.__qualname__.split(".") if name != "<locals>"]
    for attribute in vars(cls).values():
        code = getattr(attribute, "__code__", None)
        if (
            code is not None
            and code.co_filename in _sources
            and code.co_qualname.startswith(cls.__qualname__)
        ):
            return str(code.co_filename)
    for name in reversed(_sources):
        source = _sources[name]
        if f"class {names[-1]}" in source:
            try:
                if has(ast.parse(source).body, names):
                    return name
            except (SyntaxError, ValueError, RecursionError):
                continue
    return None


def _on_inspect(module: Any) -> None:
    getfile = module.getfile

    def getfile_of_cells(object: Any) -> str:
        if isinstance(object, type) and object.__module__ == "__main__":
            name = _cell_of_class(object)
            if name is not None:
                return name
        found: str = getfile(object)
        return found

    getfile_of_cells.__doc__ = getfile.__doc__
    module.getfile = getfile_of_cells
    module.modulesbyfile.clear()


def install() -> None:
    """Teaches `linecache` and `inspect`, now or when they are imported."""
    imports.after("linecache", _on_linecache)
    imports.after("inspect", _on_inspect)


def _strip(report: Any, seen: set[int]) -> None:
    """Takes the worker's frames out of a traceback and of all that it is chained to."""
    if report is None or id(report) in seen:
        return
    seen.add(id(report))
    report.stack[:] = [line for line in report.stack if not line.filename.startswith(_FOLDER)]
    _strip(report.__cause__, seen)
    _strip(report.__context__, seen)
    for inner in getattr(report, "exceptions", None) or ():
        _strip(inner, seen)


def format_error(error: BaseException) -> str:
    """The traceback as Python shows it, without the worker's frames; never raises `Exception`."""
    try:
        from traceback import TracebackException

        report = TracebackException(type(error), error, error.__traceback__, compact=True)
        _strip(report, set())
        text = "".join(report.format())
    except BaseException as fault:
        text = f"{type(error).__name__}\n(no traceback: {type(fault).__name__} while it was made)\n"
    return bounded(text)


def bounded(text: str, bytes_max: int = ERROR_BYTES_MAX) -> str:
    """`text` with its middle taken out where it is too long, and with lone surrogates escaped."""
    data = text.encode("utf-8", "backslashreplace")
    if len(data) <= bytes_max:
        return data.decode()
    note = f"\n... {len(data) - bytes_max} bytes and more left out ...\n".encode()
    head = bytes_max // 4
    tail = bytes_max - head - len(note)
    cut = data[:head].decode("utf-8", "ignore"), data[-tail:].decode("utf-8", "ignore")
    return cut[0] + note.decode() + cut[1]
