"""The workspace, and commands in it whose descendants are the host's to end."""

from __future__ import annotations

from klbr.request import ask, texts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any


async def info() -> dict[str, Any]:
    """`root`, and what its version control says (`vcs`, or None)."""
    result: dict[str, Any] = await ask("workspace.info")
    return result


async def run(
    argv: Iterable[str],
    cwd: str = ".",
    env: Mapping[str, str] | None = None,
    timeout_ms: int = 120_000,
    max_output_bytes: int = 750_000,
) -> dict[str, Any]:
    """Runs a command, no shell between, and gives its outcome and output.

    `cwd` is relative to the workspace; `env` is added to the environment. At the timeout the command is
    killed together with all that it started. A command that fails is a result, not an exception.
    """
    words = texts(argv, "argv")
    if not words:
        raise ValueError("argv is empty")
    variables = dict(env or {})
    for name, value in variables.items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise TypeError("env maps strings to strings")
    result: dict[str, Any] = await ask(
        "workspace.run",
        argv=words,
        cwd=cwd,
        env=variables,
        timeout_ms=timeout_ms,
        max_output_bytes=max_output_bytes,
    )
    return result
