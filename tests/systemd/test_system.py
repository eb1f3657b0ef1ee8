"""The service of the machine: a host that may start nothing, and workers of another user."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import unittest
import warnings
from pathlib import Path
from typing import Any

from machine import BOX, MANUAL, STAGE, drop_in, members, readme_drop_in, run, stopped_hard, until

CONFIG = Path("/etc/klbr/klbr.toml")
WORKSPACE = Path("/var/lib/klbr-worker")
DATA = Path("/var/lib/klbr")
SLICE = Path("/sys/fs/cgroup/klbr.slice/klbr-workers.slice")

POLKIT = Path("/usr/lib/polkit-1/polkitd").exists()
needs_polkit = unittest.skipUnless(POLKIT, "there is no polkit here (apt install polkitd)")


def show(unit: str, name: str) -> str:
    return run("systemctl", "show", "-P", name, unit).stdout.strip()


class SystemMachine(unittest.TestCase):
    def setUp(self) -> None:
        warnings.simplefilter("ignore", ResourceWarning)
        if not Path("/usr/bin/klbr").exists():
            shutil.copytree(STAGE, "/", dirs_exist_ok=True, symlinks=True)
            Path("/").chmod(0o755)
        run("systemd-sysusers")
        if BOX:
            # No /dev/kmsg here, and no second /proc: they cannot be set up (they work on a machine).
            lines = "[Service]\nProtectKernelLogs=no\nProtectProc=default\nProcSubset=all\n"
            for unit in ("klbr.service", "klbr-worker@.service"):
                drop_in("system", unit, lines, "box")
        run("systemctl", "daemon-reload")
        if POLKIT:
            run("systemctl", "start", "polkit.service")
        self.addCleanup(self.clean_up)

    def _callTestMethod(self, method: Any) -> None:
        try:
            method()
        except BaseException:
            print(run("journalctl", "--no-pager", "-n", "80").stdout)
            raise

    def clean_up(self) -> None:
        run("systemctl", "stop", "klbr.socket", "klbr.service", "klbr-worker.socket", check=False)
        run("systemctl", "reset-failed", check=False)
        for folder in (CONFIG.parent, WORKSPACE, DATA):
            shutil.rmtree(folder, ignore_errors=True)
        for unit in ("klbr.service", "klbr-worker@.service"):
            Path(f"/etc/systemd/system/{unit}.d/test.conf").unlink(missing_ok=True)

    def configure(self, text: str = MANUAL) -> None:
        CONFIG.parent.mkdir(exist_ok=True)
        CONFIG.write_text(f'workspace = "{WORKSPACE}"\n{text}')

    def up(self, text: str = MANUAL) -> dict[str, Any]:
        self.configure(text)
        run("systemctl", "start", "klbr.socket")
        status: dict[str, Any] = json.loads(self.klbr("status", "--json").stdout)
        return status

    def klbr(self, *argv: str, **more: Any) -> subprocess.CompletedProcess[str]:
        return run("klbr", *argv, env={"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"}, **more)

    def cell(self, code: str) -> str:
        done = self.klbr("exec", code, check=False)
        return (done.stdout + done.stderr).strip()

    def workers(self) -> list[int]:
        return list(members(SLICE))


class System(SystemMachine):
    def test_it_runs_from_nothing_and_survives_a_restart(self) -> None:
        # No configuration: one is made, with which the host runs.
        run("systemctl", "start", "klbr.socket")
        self.assertEqual(json.loads(self.klbr("status", "--json").stdout)["containment"], "systemd")
        self.assertEqual((CONFIG.owner(), CONFIG.stat().st_mode & 0o777), ("root", 0o644))
        self.assertEqual((WORKSPACE.owner(), DATA.owner()), ("klbr-worker", "klbr"))
        self.configure()
        run("systemctl", "restart", "klbr.service")

        status = json.loads(self.klbr("status", "--json").stdout)
        self.assertEqual(status["containment"], "systemd")
        self.assertEqual(status["unenforced"], [])
        self.assertEqual(self.cell("x = 41; x + 1"), "42")
        whoami = "import getpass, os; print(getpass.getuser(), os.environ['HOME'], os.getcwd())"
        self.assertEqual(self.cell(whoami), f"klbr-worker {WORKSPACE} {WORKSPACE}")
        self.assertEqual(self.cell("_ = open('kept', 'w').write('here')"), "")
        # Hooks run in such a unit too.
        run("systemctl", "restart", "klbr.service")
        self.assertEqual(self.cell("print(open('kept').read(), 'x' in globals())"), "here False")
        units = run("systemctl", "list-units", "--plain", "--no-legend", "klbr-worker@*").stdout.split()
        self.assertGreaterEqual(len([unit for unit in units if unit.endswith(".service")]), 2)

    def test_its_operators_are_a_group(self) -> None:
        self.up()
        run("useradd", "--create-home", "olga", check=False)
        asked = ("runuser", "-u", "olga", "--", "klbr", "exec", "6 * 7")
        denied = run(*asked, check=False)
        self.assertNotEqual(denied.returncode, 0)
        self.assertRegex(denied.stderr, r"/run/klbr\.sock.*Permission denied")
        run("usermod", "-aG", "klbr-operator", "olga")
        self.assertEqual(run(*asked).stdout.strip(), "42")

    def test_a_stop_is_the_hosts_to_make(self) -> None:
        self.up()
        self.cell("import time")
        running = subprocess.Popen(["klbr", "exec", "time.sleep(60)"], stderr=subprocess.PIPE, text=True)
        started = '"kind":"cell.started"'
        until("it runs", lambda: self.klbr("log", "--json").stdout.replace(": ", ":").count(started) > 1)
        run("systemctl", "stop", "klbr.service")
        running.communicate(timeout=30)
        log = [json.loads(line) for line in self.klbr("log", "--json").stdout.splitlines()]
        ended = [event["payload"] for event in log if event["kind"] == "cell.completed"][-1]
        # Not killed by the manager beforehand.
        self.assertRegex(ended["error"], "the host was stopped; it exited with status 0")

    def test_from_inside_everything_else_is_refused(self) -> None:
        self.up()
        host = show("klbr.service", "MainPID")
        tried = self.cell(
            "import os, socket, subprocess\n"
            "def connect(path):\n"
            "    with socket.socket(socket.AF_UNIX) as s: s.connect(path)\n"
            "def systemd_run():\n"
            "    done = subprocess.run(['systemd-run', '--wait', 'id'], capture_output=True)\n"
            "    if done.returncode: raise OSError(done.stderr)\n"
            "for name, attempt in {\n"
            f"    'log': lambda: open('{DATA}/klbr.db'),\n"
            f"    'config': lambda: open('{CONFIG}'),\n"
            "    'operator': lambda: connect('/run/klbr.sock'),\n"
            "    'spawn': lambda: connect('/run/klbr-spawn.sock'),\n"
            "    'bus': lambda: connect('/run/dbus/system_bus_socket'),\n"
            "    'manager': lambda: connect('/run/systemd/private'),\n"
            "    'journal': lambda: connect('/run/systemd/journal/stdout'),\n"
            "    'credentials': lambda: os.listdir('/run/credentials'),\n"
            "    'home': lambda: os.listdir('/home/tester'),\n"
            f"    'signal': lambda: os.kill({host}, 0),\n"
            f"    'environment': lambda: open('/proc/{host}/environ').read(),\n"
            "    'group': lambda: open('/sys/fs/cgroup/cgroup.procs', 'w'),\n"
            "    'etc': lambda: open('/etc/x', 'w'),\n"
            "    'network': lambda: socket.create_connection(('127.0.0.1', 1)),\n"
            "    'setuid': lambda: os.setuid(0),\n"
            "    'systemd-run': systemd_run,\n"
            "}.items():\n"
            "    try: attempt()\n"
            "    except OSError: pass\n"
            "    else: print(name)\n"
            "manager = {'LISTEN_FDS', 'NOTIFY_SOCKET', 'CREDENTIALS_DIRECTORY', 'JOURNAL_STREAM', 'INVOCATION_ID'}\n"
            "print(sorted(manager & os.environ.keys()))\n"
            "print(sorted(os.readlink(f'/proc/self/fd/{n}').split(':')[0] for n in os.listdir('/proc/self/fd')\n"
            "  if os.path.exists(f'/proc/self/fd/{n}') or os.path.islink(f'/proc/self/fd/{n}')))\n"
        ).splitlines()
        self.assertEqual(tried[:-1], ["[]"])
        descriptors = json.loads(tried[-1].replace("'", '"'))
        self.assertEqual(descriptors.count("socket"), 1, descriptors)

    def test_a_stop_reaches_every_descendant(self) -> None:
        self.up()
        deaf = (
            "import os, signal, time, subprocess\n"
            "for _ in range(100):\n"
            "    if os.fork() == 0:\n"
            "        os.setsid()\n"
            "        if os.fork(): os._exit(0)\n"
            "        signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
            "        while True: time.sleep(60)\n"
        )

        def filled() -> None:
            self.assertEqual(self.cell(deaf), "")
            until("they are there", lambda: len(self.workers()) > 100)

        def emptied(before: list[int]) -> bool:
            return not set(before) & set(self.workers())

        ends = {
            "reset": lambda: self.klbr("reset"),
            "the host's death": lambda: os.kill(int(show("klbr.service", "MainPID")), signal.SIGKILL),
            "restart": lambda: run("systemctl", "restart", "klbr.service"),
            "stop": lambda: run("systemctl", "stop", "klbr.service"),
        }
        for name, end in ends.items():
            with self.subTest(name):
                filled()
                # The hook worker is another unit, which a reset leaves alone.
                listed = self.cell("print(open('/proc/self/cgroup').read())").splitlines()
                group = next(line.removeprefix("0::") for line in listed if line.startswith("0::"))
                before = list(members(Path("/sys/fs/cgroup" + group)))
                self.assertGreater(len(before), 100, group)
                end()
                until("nothing is left", lambda before=before: emptied(before))
                if name != "stop":
                    self.assertEqual(self.cell("1"), "1")
        self.assertEqual(self.workers(), [])

    def test_a_stop_while_a_worker_starts_waits_for_neither(self) -> None:
        before = stopped_hard()
        for _ in range(5):
            self.up()
            units = run("systemctl", "list-units", "--plain", "--no-legend", "klbr-worker@*.service").stdout
            for line in units.splitlines():
                run("systemctl", "kill", line.split()[0], check=False)
            run("systemctl", "stop", "klbr.service")
            self.assertEqual(stopped_hard(), before)
            self.assertEqual(show("klbr.service", "Result"), "success")
            until("nothing is left", lambda: not self.workers())

    @needs_polkit
    def test_a_shim_that_is_stopped_does_not_save_its_worker(self) -> None:
        self.up()
        self.assertEqual(self.cell("import os, signal; os.kill(os.getppid(), signal.SIGSTOP)"), "")
        self.klbr("reset")
        self.assertEqual(self.cell("6 * 7"), "42")

    def test_the_end_of_a_worker_is_told_by_the_manager(self) -> None:
        self.up()
        self.cell("import os; os._exit(3)")
        self.cell("import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
        log = [json.loads(line) for line in self.klbr("log", "--json").stdout.splitlines()]
        ended = [event["payload"] for event in log if event["kind"] == "generation.ended"]
        ended = [payload for payload in ended if payload["role"] == "workbench"]
        self.assertEqual(ended[0]["exit_code"], 3, ended)
        self.assertEqual(ended[1]["signal"], signal.SIGKILL, ended)

    def test_who_is_no_worker_of_the_unit_is_no_worker(self) -> None:
        """Somebody else listens on the spawn socket: the manager says that it is no such unit."""
        self.configure()
        run("systemctl", "start", "klbr-worker.socket")
        Path("/run/klbr-spawn.sock").unlink()
        impostor = (
            "import os, socket\n"
            "s = socket.socket(socket.AF_UNIX); s.bind('/run/klbr-spawn.sock')\n"
            "os.chmod('/run/klbr-spawn.sock', 0o666); s.listen()\n"
            "while True:\n c, _ = s.accept(); c.send(b'!'); c.recv(1)\n"
        )
        run("systemd-run", "--unit=impostor", "python3", "-c", impostor)
        self.addCleanup(run, "systemctl", "stop", "impostor.service", check=False)
        until("it listens", lambda: Path("/run/klbr-spawn.sock").exists())
        run("systemctl", "start", "klbr.socket")
        done = self.klbr("status", check=False)
        self.assertIn("impostor.service", done.stdout + done.stderr)

    @needs_polkit
    def test_the_host_may_end_its_workers_and_nothing_else(self) -> None:
        self.up()
        self.cell("1")
        units = run("systemctl", "list-units", "--plain", "--no-legend", "klbr-worker@*.service").stdout
        worker = units.split()[0]

        def as_host(verb: str, unit: str) -> int:
            return run(
                "runuser", "-u", "klbr", "--", "systemctl", "--no-ask-password", verb, unit, check=False
            ).returncode

        for verb, unit in (
            ("stop", "klbr.service"),
            ("start", "systemd-machine-id-commit.service"),
            ("restart", worker),
            ("kill", "dbus.service"),
            ("start", "klbr-worker@x.service"),
        ):
            self.assertNotEqual(as_host(verb, unit), 0, (verb, unit))
        self.assertEqual(as_host("kill", worker), 0)

    def test_the_drop_in_of_the_readme_opens_what_it_says(self) -> None:
        text = readme_drop_in("`systemctl edit klbr-worker@.service`")
        project = Path("/srv/project")
        project.mkdir(exist_ok=True)
        shutil.chown(project, "klbr-worker")
        drop_in("system", "klbr-worker@.service", text)
        run("systemctl", "daemon-reload")
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
            self.assertEqual(self.up()["unenforced"], [])
            connect = f"import socket; socket.create_connection(('127.0.0.1', {port})).fileno() > 0"
            self.assertEqual(self.cell(connect), "True")
        self.assertEqual(self.cell(f"open('{project}/x', 'w').write('x')"), "1")
        self.assertIn("Error", self.cell("open('/srv/x', 'w')"))
        # And the doctor, as root, finds nothing wrong.
        done = self.klbr("--config", str(CONFIG), "--data", str(DATA), "doctor", "--json", check=False)
        found = [json.loads(line) for line in done.stdout.splitlines()]
        self.assertEqual([one for one in found if one["verdict"] == "fail"], [], found)

    def test_the_key_is_a_credential_also_an_encrypted_one(self) -> None:
        route = '[route]\nuse = "m"\n[routes.m]\nbase_url = "http://127.0.0.1:9/v1"\nmodel = "m"\n'
        key = "sk-of-the-machine"
        file = Path("/etc/klbr-key")
        file.touch(mode=0o600)
        file.write_text(key)
        encrypted = run("systemd-creds", "encrypt", "--pretty", "--name=api-key", str(file), "-").stdout
        self.assertNotIn(key, encrypted)
        for given in (f"LoadCredential=api-key:{file}", encrypted):
            with self.subTest(given):
                drop_in("system", "klbr.service", f"[Service]\n{given}\n")
                run("systemctl", "daemon-reload")
                run("systemctl", "stop", "klbr.service", check=False)
                # The route opens, so the key was read; nobody is to be asked with it here.
                self.assertEqual(
                    self.up(route + 'api_key_credential = "api-key"\n')["containment"], "systemd"
                )
                given_to = Path("/run/credentials/klbr.service/api-key")
                self.assertEqual(given_to.read_text(), key)
                read = f"print(open('{given_to}').read())"
                self.assertRegex(self.cell(read), "PermissionError|FileNotFoundError")
                shown = run("systemctl", "show", "--all", "klbr.service").stdout
                told = run("journalctl", "--no-pager", "-o", "export").stdout
                self.assertFalse(key in shown or key in told)
