"""A stop reaches every descendant, however it was asked for, and nothing else."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import time

from machine import UserMachine, members, until

DESCENDANTS = 500
LOOPS = int(os.environ.get("KLBR_LOOPS", "250"))

# Detached twice, in a session of their own, deaf to SIGTERM; and some that change their pid all the time.
BREED = f"""
import os, signal, time
def detached(body):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            for deaf in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
                signal.signal(deaf, signal.SIG_IGN)
            body()
        os._exit(0)
    os.wait()
def sleep():
    while True:
        time.sleep(3600)
def hop():
    while True:
        if os.fork():
            os._exit(0)
        os.setsid()
        time.sleep(0.002)
for _ in range({DESCENDANTS}):
    detached(sleep)
for _ in range(4):
    detached(hop)
"""


class Kill(UserMachine):
    def breed(self) -> None:
        self.assertEqual(self.cell(BREED), "")
        self.assertGreater(len(self.workers()), DESCENDANTS)

    def test_whatever_ends_a_generation_ends_all_of_it_and_nothing_else(self) -> None:
        bystander = self.as_user("systemd-run", "--user", "--unit=bystander", "sleep", "3600")
        self.assertEqual(bystander.returncode, 0)
        outside = int(self.show("bystander.service", "MainPID"))
        self.addCleanup(lambda: self.systemctl("stop", "bystander.service", check=False))

        def reset() -> None:
            self.klbr("reset")

        def killed() -> None:
            host = self.host_pid()
            os.kill(host, signal.SIGKILL)
            until("another host", lambda: self.host_pid() not in (0, host))
            self.objects("status")

        def restart() -> None:
            self.systemctl("restart", "klbr.service")

        def stop() -> None:
            self.systemctl("stop", "klbr.service")

        self.up()
        for end in (reset, killed, restart, stop):
            with self.subTest(end=end.__name__):
                self.objects("status")
                self.breed()
                # The other unit is the one of the hooks.
                group = max(self.worker_group().glob("*.service"), key=lambda unit: len(list(members(unit))))
                bred = set(members(group))
                begin = time.monotonic()
                end()
                print(f"{end.__name__}: {time.monotonic() - begin:.3f} s", flush=True)
                self.assertFalse(group.exists() and list(members(group)))
                # Hoppers have other pids by now: what counts is the group.
                left = set(self.workers())
                self.assertFalse(left & bred)
                self.assertLess(len(left), 20, left)
                if end is stop:
                    self.assertEqual(left, set())
        os.kill(outside, 0)

    def test_generations_start_and_end_again_and_again(self) -> None:
        self.up()
        for number in range(LOOPS):
            self.assertEqual(self.cell(f"import os; (os.fork() or os.setsid()) and {number}"), str(number))
            self.klbr("reset")
        until("one unit of each role is left", lambda: len(self.generations()) <= 2)
        # A hook worker that a busy machine kept from an answer is replaced: that is not what is counted.
        ended = self.objects("log", "--kind", "generation.ended")
        ended = [event for event in ended if event["payload"]["role"] == "workbench"]
        self.assertEqual(len(ended), LOOPS)


class Manager(UserMachine):
    def test_the_manager_and_the_bus_may_start_again(self) -> None:
        self.up()
        self.assertEqual(self.cell("kept = 41"), "")
        self.systemctl("daemon-reexec")
        self.assertEqual(self.cell("kept + 1"), "42")
        self.systemctl("restart", "dbus.service")
        self.assertEqual(self.cell("kept + 1"), "42")
        # Both are needed for this.
        self.klbr("reset")
        self.assertEqual(self.cell("6 * 7"), "42")
        self.assertEqual(self.objects("status")[0]["containment"], "systemd")

    def test_leftovers_of_an_earlier_host_are_found_by_name(self) -> None:
        self.up()
        self.assertEqual(self.cell(BREED), "")
        host = self.host_pid()
        # Neither the shim nor the unit's last command may help.
        for pid in self.workers():
            with contextlib.suppress(ProcessLookupError):  # a hopper
                os.kill(pid, signal.SIGSTOP)
        os.kill(host, signal.SIGKILL)
        until("another host", lambda: self.host_pid() not in (0, host))
        self.assertEqual(self.cell("6 * 7"), "42")
        self.assertLess(len(self.workers()), 20)

    def test_without_a_manager_it_is_said_what_to_do(self) -> None:
        self.configure('containment = "systemd"\n[route]\nuse = "m"\n[routes.m]\nkind = "manual"\n')
        folder = self.home / "data"
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        bare = {"HOME": str(self.home), "PATH": "/usr/bin:/bin", "KLBR_DATA": str(folder)}
        bare["KLBR_SOCKET"] = str(self.home / "klbr/s.sock")
        self.as_user("klbr", "init", env=bare)
        cases = {
            "an empty runtime directory": {"XDG_RUNTIME_DIR": str(self.home)},
            "a bus that is not there": {"DBUS_SESSION_BUS_ADDRESS": f"unix:path={self.home}/no"},
        }
        for name, more in cases.items():
            with self.subTest(case=name):
                done = self.as_user("klbr", "serve", env=bare | more, check=False)
                self.assertEqual(done.returncode, 6, done)
                self.assertIn("loginctl enable-linger", done.stderr)
                self.assertEqual(
                    len([line for line in done.stderr.splitlines() if line.startswith("klbr:")]), 1
                )
