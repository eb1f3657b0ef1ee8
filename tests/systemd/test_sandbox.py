"""From inside a worker: what it must not reach, tried for real, and what it must."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from machine import MANUAL, UserMachine, systemd_version


class Inside(UserMachine):
    def reading(self, path: Path | str) -> str:
        return self.cell(f"open({str(path)!r}, 'rb').read()[:1]")

    def secret(self, name: str) -> Path:
        file = self.home / name
        file.parent.mkdir(exist_ok=True, mode=0o700)
        file.write_text("secret")
        for path in (file.parent, file):
            os.chown(path, self.who.pw_uid, self.who.pw_gid)
        return file

    def test_the_manager_the_operator_and_what_is_secret_are_out_of_reach(self) -> None:
        key = self.secret(".ssh/id_ed25519")
        self.addCleanup(lambda: shutil.rmtree(key.parent))
        public = self.home / "public"
        public.write_text("x")
        os.chown(public, self.who.pw_uid, self.who.pw_gid)
        self.up()
        runtime = f"env={{'XDG_RUNTIME_DIR': '{self.runtime}', 'PATH': '/usr/bin'}}"
        run = f"import subprocess; subprocess.run(['systemd-run', '--user', '--wait', '--pipe', 'id'], capture_output=True, {runtime}).returncode"
        self.assertNotIn(self.cell(run), ("0", ""))
        self.assertIn("Error", self.cell("open('/sys/fs/cgroup/init.scope/cgroup.procs', 'w')"))
        own = "open('/sys/fs/cgroup' + open('/proc/self/cgroup').read().strip().split('::')[1] + '/../cgroup.procs', 'w')"
        self.assertIn("Error", self.cell(own))
        for path in (self.runtime / "klbr.sock", self.runtime / "bus", self.runtime / "systemd/private"):
            tried = self.cell(f"import socket; socket.socket(socket.AF_UNIX).connect({str(path)!r})")
            self.assertRegex(tried, "PermissionError|FileNotFoundError|ConnectionRefusedError", str(path))
        for path in (self.home / ".config/klbr/klbr.toml", self.home / ".config/klbr/klbr.db", key):
            self.assertRegex(self.reading(path), "PermissionError|FileNotFoundError", str(path))
        # The default of `home` is to read.
        self.assertEqual(self.reading(public), "b'x'")
        self.assertRegex(self.cell(f"open({str(public)!r}, 'w')"), "OSError|PermissionError")
        self.assertEqual(self.cell(f"open('{self.home}/klbr/mine', 'w').write('x')"), "1")

    def test_nothing_of_the_host_is_inherited(self) -> None:
        self.up()
        names = self.cell(
            "import os; sorted(n for n in os.environ if n.startswith(('LISTEN', 'NOTIFY', 'WATCHDOG', 'CREDENTIALS', 'DBUS', 'XDG_RUNTIME')))"
        )
        self.assertEqual(names, "[]")
        # Standard input and its two outputs, the control socket, and what asyncio has for itself.
        targets = "[os.readlink(f'/proc/self/fd/{n}').split(':')[0] for n in sorted(os.listdir('/proc/self/fd'), key=int) if os.path.exists(f'/proc/self/fd/{n}')]"
        listed = self.cell(f"import os; {targets}")
        self.assertTrue(listed.startswith("['/dev/null', 'pipe', 'pipe', "), listed)
        for word in ("klbr.db", "klbr.sock", "cgroup"):
            self.assertNotIn(word, listed)
        capabilities = self.cell(
            "import re; re.findall('Cap(?:Prm|Eff|Bnd|Amb):\\t(.*)', open('/proc/self/status').read())"
        )
        self.assertEqual(capabilities, str(["0" * 16] * 4))
        self.assertEqual(
            self.cell("import re; re.findall('NoNewPrivs:\\t(.*)', open('/proc/self/status').read())"),
            "['1']",
        )

    def test_the_host_can_be_signalled_only_by_what_an_old_manager_starts(self) -> None:
        self.up()
        host = self.host_pid()
        tried = self.cell(f"import os; os.kill({host}, 0)")
        # Contained, not adversarial: before 257 it is the same user's process, and status says so.
        self.assertEqual("Error" in tried, systemd_version() >= 257, tried)
        for file in ("environ", "mem", "maps", "fd/0"):
            read = self.cell(f"open('/proc/{host}/{file}', 'rb').read(1)")
            self.assertRegex(read, "PermissionError|FileNotFoundError", file)

    def test_what_is_not_enforced_here_is_named(self) -> None:
        self.configure(MANUAL + '[sandbox]\nmemory_max = "512M"\ntasks_max = 256\nnetwork = false\n')
        self.systemctl("start", "klbr.socket")
        named = self.objects("status")[0]["unenforced"]
        controllers = Path(f"/sys/fs/cgroup/{self.show('klbr.service', 'ControlGroup')}/cgroup.controllers")
        has = controllers.read_text().split()
        for setting, controller in (("sandbox.memory_max", "memory"), ("sandbox.tasks_max", "pids")):
            self.assertEqual(setting in named, controller not in has, named)
        self.assertNotIn("sandbox.network", named)
        self.assertEqual(self.cell("6 * 7"), "42")

    def test_the_settings_of_the_sandbox_are_in_force(self) -> None:
        public = self.home / "public"
        public.write_text("x")
        os.chown(public, self.who.pw_uid, self.who.pw_gid)
        self.up(MANUAL + '[sandbox]\nhome = "hidden"\nnetwork = false\n')
        self.assertIn("FileNotFoundError", self.reading(public))
        self.assertEqual(self.cell(f"open('{self.home}/klbr/mine', 'w').write('x')"), "1")
        tried = self.cell("import socket; socket.socket(socket.AF_INET)")
        self.assertRegex(tried, "OSError")

        self.configure(MANUAL + f'[sandbox]\nhome = "hidden"\nread_only = ["{public}"]\n')
        self.systemctl("restart", "klbr.service")
        self.assertEqual(self.reading(public), "b'x'")
        self.assertEqual(self.cell("import socket; socket.socket(socket.AF_INET).fileno() > 0"), "True")

        self.configure(MANUAL + '[sandbox]\nhome = "read-write"\n')
        self.systemctl("restart", "klbr.service")
        self.assertEqual(self.cell(f"open({str(public)!r}, 'w').write('y')"), "1")
        self.assertRegex(
            self.reading(self.home / ".config/klbr/klbr.toml"), "PermissionError|FileNotFoundError"
        )
