"""What a worker is told when it is started, by arguments or by the first line of an inherited connection."""

from __future__ import annotations

from klbr.protocol import ProtocolError, parse_object
from klbr.vocabulary import ROLES, is_identifier

USAGE = """\
usage: python3 -m klbr.worker --role workbench|hooks --session ID --generation ID --socket PATH
                              --token-file PATH [--skills PATH] [--release DIR]
       python3 -m klbr.worker --inherited
"""
_NAMES = ("role", "session", "generation", "socket", "token-file", "skills", "release")
_LINE_FIELDS = {"role", "session", "generation", "token", "skills", "release"}


class OptionError(Exception):
    """The worker was started in a way that it does not know."""


class Options:
    """Checked options. `socket` and `token_file` are None for an inherited connection."""

    def __init__(
        self,
        role: str,
        session: str,
        generation: str,
        skills: str | None,
        release: str | None,
        socket: str | None = None,
        token_file: str | None = None,
    ) -> None:
        if role not in ROLES:
            raise OptionError(f"role is one of {', '.join(ROLES)}, not {role!r}")
        for name, value in (("session", session), ("generation", generation)):
            if not is_identifier(value):
                raise OptionError(f"{name} is not an identifier: {value!r}")
        if role == "hooks" and release is None:
            raise OptionError("the role hooks needs a release")
        self.role = role
        self.session = session
        self.generation = generation
        self.skills = skills
        self.release = release
        self.socket = socket
        self.token_file = token_file


def from_arguments(arguments: list[str]) -> Options:
    """Options of a command line without `--inherited`. Raises `OptionError`."""
    found: dict[str, str] = {}
    waiting = list(reversed(arguments))
    while waiting:
        word = waiting.pop()
        name, equals, value = word.partition("=")
        name = name.removeprefix("--")
        if not word.startswith("--") or name not in _NAMES:
            raise OptionError(f"unknown argument {word!r}")
        if name in found:
            raise OptionError(f"--{name} is given twice")
        if not equals:
            if not waiting:
                raise OptionError(f"--{name} needs a value")
            value = waiting.pop()
        found[name] = value
    for name in ("role", "session", "generation", "socket", "token-file"):
        if name not in found:
            raise OptionError(f"--{name} is missing")
    return Options(
        found["role"],
        found["session"],
        found["generation"],
        found.get("skills"),
        found.get("release"),
        found["socket"],
        found["token-file"],
    )


def from_line(line: bytes) -> tuple[Options, str]:
    """Options and token of the first line of an inherited connection. Raises `OptionError`."""
    try:
        fields = parse_object(line)
    except ProtocolError as error:
        raise OptionError(f"first line: {error}") from None
    if fields.keys() != _LINE_FIELDS:
        raise OptionError("first line has missing or unknown fields")
    for name in ("role", "session", "generation", "token"):
        if not isinstance(fields[name], str):
            raise OptionError(f"{name} of the first line is not a string")
    for name in ("skills", "release"):
        if fields[name] is not None and not isinstance(fields[name], str):
            raise OptionError(f"{name} of the first line is not a string or null")
    options = Options(
        fields["role"], fields["session"], fields["generation"], fields["skills"], fields["release"]
    )
    return options, fields["token"]
