"""What has to happen when a cell imports something, and not before: a worker starts without it.

`after(name, hook)` runs `hook(module)` right behind the first import of `name`. `LateSite` runs the `site`
module, which a worker is started without (`-S`), at the first import that needs site-packages.
"""

from __future__ import annotations

import builtins
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any

_hooks: dict[str, Callable[[Any], None]] = {}


class _Watcher:
    """First on the meta path: finds a watched module by the other finders, and adds to its loading."""

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name not in _hooks:
            return None
        spec = None
        for finder in sys.meta_path:
            if finder is not _Watcher:
                spec = finder.find_spec(name, path, target)
                if spec is not None:
                    break
        if spec is None or spec.loader is None:
            return spec
        loader: Any = spec.loader
        execute = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            hook = _hooks.pop(name, None)
            if hook is not None:
                hook(module)

        loader.exec_module = exec_module
        return spec


class LateSite:
    """Last on the meta path: what is not in the standard library needs the site-packages folders."""

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if path is not None or name in sys.stdlib_module_names:
            return None
        load_site()
        from importlib.machinery import PathFinder

        return PathFinder.find_spec(name, None, target)


def load_site(_module: object = None) -> None:
    """Runs `site` now if it did not run yet: site-packages, `.pth` files, the virtual environment."""
    if LateSite not in sys.meta_path:
        return
    sys.meta_path.remove(LateSite)
    ours = {name: getattr(builtins, name) for name in ("exit", "quit", "help") if hasattr(builtins, name)}
    had_working_folder = sys.path[:1] == [""]
    import site

    site.main()
    for name, value in ours.items():
        setattr(builtins, name, value)
    if had_working_folder and "" not in sys.path:
        # `site` makes every entry absolute, and the first one was to follow `os.chdir`.
        sys.path[:1] = [""]


def after(name: str, hook: Callable[[Any], None]) -> None:
    """Runs `hook(module)` behind the import of `name`; at once where it is imported already."""
    module = sys.modules.get(name)
    if module is not None:
        hook(module)
    else:
        _hooks[name] = hook


def install() -> None:
    """Puts both finders in place."""
    sys.meta_path.insert(0, _Watcher)
    if sys.flags.no_site:
        sys.meta_path.append(LateSite)
        after("importlib.metadata", load_site)
