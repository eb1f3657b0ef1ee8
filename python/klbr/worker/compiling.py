"""From the source of a cell to code: the statements, and the final expression whose value is shown."""

from __future__ import annotations

from klbr.worker import sources

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import CodeType
    from typing import Any

CODE_BYTES_MAX = 262_144

# Values of `ast`, `__future__` and `inspect`, which are not imported for them.
_ONLY_AST = 0x400
_TOP_LEVEL_AWAIT = 0x2000
_FUTURE_FLAGS = 0x1FE0000
_COROUTINE = 0x80


def is_coroutine(code: CodeType | None) -> bool:
    """Whether evaluating `code` gives a coroutine: it awaits at its top level."""
    return code is not None and bool(code.co_flags & _COROUTINE)


class Compiler:
    """Compiles cells one after the other: a `from __future__` of one holds for those behind it."""

    def __init__(self) -> None:
        self._future_flags = 0

    def compile(self, name: str, source: str) -> tuple[CodeType | None, CodeType | None]:
        """Code of the statements and of the final expression, each None where there is none.

        Raises what `compile` raises, and `ValueError` for a source over 262,144 bytes.
        """
        # A character is four bytes at most: a short source needs no counting.
        if len(source) * 4 > CODE_BYTES_MAX and len(source.encode("utf-8", "replace")) > CODE_BYTES_MAX:
            raise ValueError(f"the cell is longer than {CODE_BYTES_MAX} bytes")
        sources.keep(name, source)
        flags = _TOP_LEVEL_AWAIT | self._future_flags
        tree: Any = compile(source, name, "exec", flags | _ONLY_AST, True)
        statements = tree.body
        final = None
        if statements and type(statements[-1]).__name__ == "Expr":
            from _ast import Expression

            final = Expression(statements.pop().value)
        body = last = None
        if statements:
            body = compile(tree, name, "exec", flags, True)
            self._future_flags |= body.co_flags & _FUTURE_FLAGS
            flags |= self._future_flags
        if final is not None:
            last = compile(final, name, "eval", flags, True)
        return body, last
