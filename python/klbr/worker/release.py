"""A release of hook source: its identity, its manifest, its two entry points. See klbr-protocol(7)."""

from __future__ import annotations

import inspect
import os
import sys
from importlib import import_module

from klbr.protocol import ProtocolError, parse_object
from klbr.vocabulary import SLOTS

# The interpreter's own SHA-256: `hashlib` brings OpenSSL along, which is 4 MiB.
try:
    from _sha256 import sha256  # type: ignore[import-not-found]
except ImportError:
    try:
        from _sha2 import sha256  # type: ignore[import-not-found]
    except ImportError:
        from hashlib import sha256

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

FILES_MAX = 128
BYTES_MAX = 2 * 1024 * 1024
_SUFFIXES = (".py", ".json", ".md")


class ReleaseError(Exception):
    """The folder is not a release that can be used; says why."""


def _files(folder: str) -> list[tuple[str, str]]:
    """Relative POSIX names with their paths, sorted by name."""
    found = []
    waiting = [("", folder)]
    while waiting:
        prefix, place = waiting.pop()
        with os.scandir(place) as entries:
            for entry in entries:
                name = prefix + entry.name
                if entry.is_symlink():
                    raise ReleaseError(f"{name} is a symbolic link")
                if entry.is_dir():
                    if entry.name != "__pycache__":
                        waiting.append((name + "/", entry.path))
                elif not entry.is_file() or not name.endswith(_SUFFIXES):
                    raise ReleaseError(f"{name} is not a .py, .json or .md file")
                else:
                    found.append((name, entry.path))
                if len(found) > FILES_MAX:
                    raise ReleaseError(f"more than {FILES_MAX} files")
    # The identity sorts by UTF-8 bytes, which is the order of code points.
    return sorted(found)


def identity(folder: str) -> str:
    """SHA-256 over names and contents of the release at `folder`, in hexadecimal. Raises `ReleaseError`."""
    digest = sha256()
    total = 0
    try:
        for name, path in _files(folder):
            with open(path, "rb") as file:
                content = file.read(BYTES_MAX - total + 1)
            total += len(content)
            if total > BYTES_MAX:
                raise ReleaseError(f"more than {BYTES_MAX} bytes")
            for part in (name.encode(), content):
                digest.update(len(part).to_bytes(8, "big"))
                digest.update(part)
    except (OSError, UnicodeEncodeError) as error:
        raise ReleaseError(f"cannot read: {error}") from None
    return str(digest.hexdigest())


def entry_points(folder: str) -> dict[str, str]:
    """Slot to `module:function` by the manifest of the release. Raises `ReleaseError`."""
    try:
        with open(f"{folder}/manifest.json", "rb") as file:
            manifest = parse_object(file.read(BYTES_MAX))
    except (OSError, ProtocolError) as error:
        raise ReleaseError(f"manifest.json: {error}") from None
    hooks = manifest.get("hooks")
    if manifest.keys() != {"version", "hooks"} or type(manifest["version"]) is not int:
        raise ReleaseError("manifest.json has other fields than version and hooks")
    if manifest["version"] != 1:
        raise ReleaseError(f"manifest.json has the version {manifest['version']}, this worker knows 1")
    if not isinstance(hooks, dict) or hooks.keys() != set(SLOTS):
        raise ReleaseError(f"manifest.json names other slots than {' and '.join(SLOTS)}")
    for slot, entry in hooks.items():
        words = entry.split(":") if isinstance(entry, str) else []
        if len(words) != 2 or not all(part.isidentifier() for part in (*words[0].split("."), words[1])):
            raise ReleaseError(f"entry point of {slot} is not module:function")
    return hooks


def load(folder: str) -> dict[str, Callable[..., Any]]:
    """The handlers of the release, imported from it and able to take two arguments. Raises `ReleaseError`."""
    names = entry_points(folder)
    # What is imported from a release is not to change it, and what runs is to be what its identity says.
    sys.dont_write_bytecode = True
    folder = os.path.realpath(folder)
    sys.path.insert(0, folder)
    handlers = {}
    for slot, entry in names.items():
        module_name, _, function_name = entry.partition(":")
        try:
            module = import_module(module_name)
            handler = getattr(module, function_name)
            inspect.signature(handler).bind(None, None)
        except BaseException as error:
            raise ReleaseError(f"{entry} of {slot}: {type(error).__name__}: {error}") from error
        origin = getattr(module, "__file__", None) or "nowhere"
        if not origin.startswith(folder + "/"):
            raise ReleaseError(f"{entry} of {slot} is not in the release, it comes from {origin}")
        handlers[slot] = handler
    return handlers
