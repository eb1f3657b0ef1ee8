"""What is missing around a user: each gives a line that says what to do."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from machine import MANUAL, USER, UserMachine, drop_in, readme_drop_in, run, until


class Without(UserMachine):
    def doctor(self, environment: dict[str, str] | None = None, status: int = 0) -> dict[str, Any]:
        done = self.klbr("doctor", "--json", check=False, env=environment or self.environment)
        self.assertEqual(done.returncode, status, done)
        return {found["check"]: found for found in map(json.loads, done.stdout.splitlines())}

    def test_the_doctor_is_content_with_and_without_a_host(self) -> None:
        self.up()
        found = self.doctor()
        self.assertEqual({name: f["verdict"] for name, f in found.items() if f["verdict"] == "fail"}, {})
        self.assertTrue(found["containment"]["found"].startswith("systemd"), found)
        self.assertEqual(found["linger"]["verdict"], "ok")
        self.assertEqual(found["host"]["verdict"], "ok")

        self.systemctl("stop", "klbr.socket", "klbr.service")
        alone = self.doctor()
        self.assertNotIn("host", alone)
        self.assertEqual(alone["containment"], found["containment"])

    def test_linger(self) -> None:
        self.up()
        linger = Path("/var/lib/systemd/linger") / USER
        kept = linger.with_name(f".{USER}")
        shutil.move(linger, kept)
        try:
            found = self.doctor()["linger"]
        finally:
            shutil.move(kept, linger)
        self.assertEqual((found["verdict"], found["remedy"]), ("warn", f"loginctl enable-linger {USER}"))

    def test_an_environment(self) -> None:
        for argv in (["status"], ["doctor"], ["serve"]):
            done = self.klbr(*argv, check=False, env={"PATH": "/usr/bin:/bin"})
            self.assertEqual(done.returncode, 2, done)
            self.assertRegex(done.stderr, r"^klbr: .*HOME is not set; say it with --config\n$")
        done = self.klbr("send", "x", check=False, env={"PATH": "/usr/bin:/bin"})
        self.assertEqual(done.returncode, 3, done)
        self.assertRegex(done.stderr, r"^klbr: .*/run/klbr\.sock.*\n$")

    def foreground(self, environment: dict[str, str], more: str = "") -> tuple[int, str]:
        """Starts a host without the manager's help; its status and what it said."""
        self.configure(more + MANUAL)
        data = self.home / "klbr/data"
        places = {"KLBR_DATA": str(data), "KLBR_SOCKET": str(self.home / "klbr/s")}
        environment = (
            {n: v for n, v in self.environment.items() if n in {"HOME", "PATH"}} | environment | places
        )
        self.klbr("init", env=environment)
        host = self.start_as_user("klbr", "serve", env=environment)

        def answers() -> bool:
            done = self.klbr("status", "--json", check=False, env=environment)
            return host.poll() is not None or json.loads(done.stdout)["running"]

        until("it answers or ends", answers)
        if host.poll() is None:
            self.assertEqual(self.klbr("exec", "6 * 7", env=environment).stdout.strip(), "42")
            host.terminate()
        _, said = host.communicate(timeout=60)
        return host.returncode, said

    def test_a_variable_that_can_be_guessed(self) -> None:
        status, said = self.foreground({})
        self.assertEqual(status, 0, said)
        self.assertIn('containment="systemd"', said)

    def test_a_bus_or_a_runtime_directory_or_a_manager(self) -> None:
        empty = self.home / "empty"
        empty.mkdir(exist_ok=True)
        shutil.chown(empty, self.who.pw_uid)
        cases = [
            ({"XDG_RUNTIME_DIR": str(empty)}, r"bus|manager"),
            (
                {"XDG_RUNTIME_DIR": str(empty), "DBUS_SESSION_BUS_ADDRESS": "unix:path=/nowhere"},
                r"/nowhere|answer",
            ),
        ]
        for environment, named in cases:
            with self.subTest(environment):
                # A weaker containment, said aloud.
                status, said = self.foreground(environment)
                self.assertEqual(status, 0, said)
                self.assertRegex(said, r"(?s)held by process only.*" + named)
                self.assertIn("enable-linger", said)
                # The one that was asked for, or none.
                status, said = self.foreground(environment, 'containment = "systemd"\n')
                self.assertEqual(status, 6, said)
                self.assertRegex(said, r"(?s)klbr: there is no service manager.*" + named)
                self.assertIn("enable-linger", said)


class WithoutUserNamespaces(UserMachine):
    """As under kernel.unprivileged_userns_clone=0: the call is refused to the manager and all it starts."""

    def setUp(self) -> None:
        super().setUp()
        drop_in(
            "system", f"user@{self.who.pw_uid}.service", "[Service]\nRestrictNamespaces=~user\n", "userns"
        )
        self.again()
        self.addCleanup(self.undo)

    def undo(self) -> None:
        shutil.rmtree(f"/etc/systemd/system/user@{self.who.pw_uid}.service.d")
        self.again()

    def again(self) -> None:
        run("systemctl", "daemon-reload")
        run("systemctl", "restart", f"user@{self.who.pw_uid}.service")
        until("the user's manager", lambda: (self.runtime / "systemd/private").exists())

    def test_it_is_said(self) -> None:
        self.configure()
        self.systemctl("start", "klbr.socket")
        # The unit cannot start, whatever klbr would say: those who call it are told where to look.
        caller = self.start_as_user("klbr", "status", "--json")
        assert caller.stderr
        self.assertRegex(caller.stderr.readline(), r"no answer yet.*journalctl --user -u klbr.*klbr doctor")
        found = self.klbr("doctor", check=False)
        self.assertEqual(found.returncode, 1, found)
        self.assertRegex(found.stdout, r"FAIL +host +.*no host answers[^\n]*\n.*journalctl")
        self.assertRegex(found.stdout, r"warn +containment +process: .*user namespaces")

        # A host without a sandbox, which says so.
        drop_in("user", "klbr.service", readme_drop_in("### Where user namespaces are forbidden"))
        self.systemctl("daemon-reload")
        status = json.loads(caller.communicate(timeout=60)[0])
        self.assertEqual(status["containment"], "process")
        self.assertEqual(self.cell("open('kept', 'w').write('x')"), "1")
        self.assertEqual(self.cell("6 * 7"), "42")
