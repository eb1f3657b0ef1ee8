"""One booted machine with klbr installed: what its tests do as root and as the ordinary user.

Runs inside tests/systemd/testbed, where everything is thrown away.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import pwd
import shutil
import subprocess
import sys
import time
import unittest
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

STAGE = Path("/stage")
USER = os.environ.get("TESTBED_USER", "tester")
PATIENCE = 60.0
BOX = os.environ.get("TESTBED_BACKEND") == "nspawn"
MANUAL = '[route]\nuse = "m"\n[routes.m]\nkind = "manual"\n'


def run(*argv: str, check: bool = True, **more: Any) -> subprocess.CompletedProcess[str]:
    """Runs a program as root."""
    more.setdefault("stdin", subprocess.DEVNULL)
    done = subprocess.run(argv, capture_output=True, text=True, timeout=240, **more)
    if check and done.returncode:
        raise AssertionError(f"{argv}: {done.returncode}\n{done.stdout}{done.stderr}")
    return done


def until(what: str, holds: Callable[[], Any], patience: float = PATIENCE) -> Any:
    """Waits until it holds, and returns what it said then."""
    end = time.monotonic() + patience
    while True:
        if said := holds():
            return said
        if time.monotonic() > end:
            raise AssertionError(f"not within {patience} s: {what}")
        time.sleep(0.02)


def systemd_version() -> int:
    return int(run("systemctl", "--version").stdout.split()[1])


def install(scope: str) -> None:
    """What `make install` staged, and what a container cannot do taken out of the units of `scope`."""
    if not Path("/usr/bin/klbr").exists():
        shutil.copytree(STAGE, "/", dirs_exist_ok=True, symlinks=True)
        Path("/").chmod(0o755)
    if BOX:
        # No /dev/kmsg here: ProtectKernelLogs= cannot be set up (works on a machine).
        drop_in(scope, "klbr.service", "[Service]\nProtectKernelLogs=no\n", "box")


def drop_in(scope: str, unit: str, text: str, name: str = "test") -> Path:
    folder = Path(f"/etc/systemd/{scope}/{unit}.d")
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{name}.conf"
    file.write_text(text)
    return file


def readme_drop_in(after: str) -> str:
    """The first drop-in that README.md shows after these words, as it was installed."""
    readme = Path("/usr/share/doc/klbr/README.md").read_text()
    return readme.split(after, 1)[1].split("```", 2)[1].removeprefix("ini\n")


def stopped_hard() -> int:
    """How often a host on this machine could not drain in its time."""
    return run("journalctl", "--no-pager", "-t", "klbr").stdout.count("stopping hard")


def processes_with(mark: str) -> list[int]:
    """Every process with this in its arguments or environment."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            seen = (folder / "cmdline").read_bytes() + b"\0" + (folder / "environ").read_bytes()
        except OSError:
            continue
        if mark.encode() in seen and int(folder.name) != os.getpid():
            found.append(int(folder.name))
    return found


class UserMachine(unittest.TestCase):
    """The ordinary user with the units of `units/user`."""

    def setUp(self) -> None:
        # Clients are left running on purpose.
        warnings.simplefilter("ignore", ResourceWarning)
        install("user")
        self.who = pwd.getpwnam(USER)
        self.home = Path(self.who.pw_dir)
        self.runtime = Path(f"/run/user/{self.who.pw_uid}")
        self.environment = {
            "HOME": str(self.home),
            "USER": USER,
            "LOGNAME": USER,
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "LANG": "C.UTF-8",
            "NO_COLOR": "1",
            "XDG_RUNTIME_DIR": str(self.runtime),
            "DBUS_SESSION_BUS_ADDRESS": f"unix:path={self.runtime}/bus",
        }
        self.systemctl("daemon-reload")
        self.addCleanup(self.clean_up)

    def _callTestMethod(self, method: Callable[[], None]) -> None:
        """A test that fails shows what the machine said."""
        try:
            method()
        except BaseException:
            print(self.journal(), file=sys.stderr)
            raise

    def clean_up(self) -> None:
        """The next test begins with nothing."""
        self.systemctl("stop", "klbr.socket", "klbr.service", check=False)
        self.systemctl("stop", "klbr-workers.slice", check=False)
        self.systemctl("reset-failed", check=False)
        shutil.rmtree("/etc/systemd/user/klbr.service.d", ignore_errors=True)
        for folder in (".config/klbr", ".local/state/klbr", "klbr"):
            link = self.home / folder
            if link.is_symlink():
                link.unlink()
            shutil.rmtree(link, ignore_errors=True)

    # ------------------------------------------------------------ as the user

    def start_as_user(self, *argv: str, **more: Any) -> subprocess.Popen[str]:
        return subprocess.Popen(
            argv,
            user=self.who.pw_uid,
            group=self.who.pw_gid,
            extra_groups=[],
            cwd=self.home,
            env=more.pop("env", self.environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            **more,
        )

    def as_user(
        self, *argv: str, check: bool = True, patience: float = PATIENCE, **more: Any
    ) -> subprocess.CompletedProcess[str]:
        process = self.start_as_user(*argv, **more)
        try:
            out, err = process.communicate(timeout=patience)
        except subprocess.TimeoutExpired:
            process.kill()
            out, err = process.communicate()
            raise AssertionError(
                f"{argv} did not end within {patience} s\n{out}{err}\n{self.journal()}"
            ) from None
        if check and process.returncode:
            raise AssertionError(f"{argv}: {process.returncode}\n{out}{err}\n{self.journal()}")
        return subprocess.CompletedProcess(argv, process.returncode, out, err)

    def systemctl(self, *argv: str, check: bool = True) -> str:
        return self.as_user("systemctl", "--user", *argv, check=check).stdout

    def show(self, unit: str, name: str) -> str:
        return self.systemctl("show", "-P", name, unit).strip()

    def journal(self) -> str:
        done = run("journalctl", "--no-pager", "-n", "60", f"_UID={self.who.pw_uid}", check=False)
        return done.stdout

    def klbr(self, *argv: str, **more: Any) -> subprocess.CompletedProcess[str]:
        return self.as_user("klbr", *argv, **more)

    def objects(self, *argv: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.klbr(*argv, "--json").stdout.splitlines()]

    def cell(self, code: str) -> str:
        """Runs a cell; what it printed, or how it failed."""
        done = self.klbr("exec", code, check=False)
        return (done.stdout + done.stderr).strip()

    # ------------------------------------------------------------ the house

    def configure(self, text: str = MANUAL) -> None:
        """Writes the configuration, with the workspace ~/klbr."""
        folder = self.home / ".config/klbr"
        workspace = self.home / "klbr"
        for path in (self.home / ".config", folder, workspace):
            path.mkdir(exist_ok=True, mode=0o700)
            os.chown(path, self.who.pw_uid, self.who.pw_gid)
        file = folder / "klbr.toml"
        file.write_text(f'workspace = "{workspace}"\n{text}')
        os.chown(file, self.who.pw_uid, self.who.pw_gid)

    def up(self, text: str = MANUAL) -> dict[str, Any]:
        """A host behind its socket; its status."""
        self.configure(text)
        self.systemctl("start", "klbr.socket")
        return self.objects("status")[0]

    def host_pid(self) -> int:
        return int(self.show("klbr.service", "MainPID"))

    def generations(self) -> list[str]:
        """Units of workers that are there."""
        listed = self.systemctl("list-units", "--no-legend", "--plain", "--all", "klbr-gen-*")
        return [line.split()[0] for line in listed.splitlines() if line.strip()]

    def worker_group(self) -> Path:
        group = self.show("klbr-workers.slice", "ControlGroup")
        return Path("/sys/fs/cgroup" + group) if group else Path("/nonexistent")

    def workers(self) -> list[int]:
        """Every process below the workers' slice."""
        return list(members(self.worker_group()))


def members(group: Path) -> Iterator[int]:
    for file in group.glob("**/cgroup.procs"):
        try:
            yield from (int(line) for line in file.read_text().split())
        except OSError:
            continue


@contextlib.contextmanager
def freeze_thread(tid: int) -> Iterator[Callable[[], bool]]:
    """Stops this one thread, as a deadlock would: ptrace(2) with PTRACE_SEIZE and PTRACE_INTERRUPT."""
    libc = ctypes.CDLL(None, use_errno=True)
    for request in (0x4206, 0x4207):
        if libc.ptrace(request, tid, None, None):
            raise OSError(ctypes.get_errno(), "ptrace")
    # Its tracer has to take note of its death, or it stays a zombie and its process with it.
    yield lambda: libc.waitpid(tid, None, os.WNOHANG | 0x40000000) != 0
