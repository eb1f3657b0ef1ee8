"""Limits of memory and tasks, where the machine has the controllers for them: a virtual machine (`make test-vm`)."""

from __future__ import annotations

import json
import os
import time
import unittest

from machine import MANUAL, UserMachine, drop_in, run

HAVE = set(os.environ.get("TESTBED_CONTROLLERS", "").replace(",", " ").split())
LIMITS = '[sandbox]\nmemory_max = "200M"\ntasks_max = 64\n'
GREEDY = "kept = [bytearray(16 << 20) for _ in range(64)]"


@unittest.skipUnless({"memory", "pids"} <= HAVE, f"needs the memory and pids controllers, there are {HAVE}")
class Limits(UserMachine):
    def test_they_are_in_force_and_said_to_be(self) -> None:
        status = self.up(MANUAL + LIMITS)
        self.assertEqual([name for name in status["unenforced"] if name.startswith("sandbox.")], [])
        forks = (
            "import os, time\n"
            "n = 0\n"
            "try:\n"
            "    while n < 200:\n"
            "        if os.fork() == 0: time.sleep(600)\n"
            "        n += 1\n"
            "except BlockingIOError: print('refused', n < 64)\n"
        )
        self.assertEqual(self.cell(forks), "refused True")

    def test_a_worker_that_takes_too_much_ends_and_the_host_does_not(self) -> None:
        self.up(MANUAL + LIMITS)
        self.assertEqual(self.cell("kept = 1; kept"), "1")
        host = self.host_pid()
        before = time.monotonic()
        self.cell("2")
        usual = time.monotonic() - before
        said = self.cell(GREEDY)
        self.assertIn("memory", said)
        before = time.monotonic()
        self.assertEqual(self.klbr("status", "--json").returncode, 0)
        self.assertLess(time.monotonic() - before, max(1.0, 5 * usual))
        self.assertEqual(self.host_pid(), host)
        # Its successor works, and what was in its namespace is lost.
        self.assertEqual(self.cell("'kept' in globals()"), "False")

        ended = [row["payload"] for row in self.objects("log") if row["kind"] == "generation.ended"]
        reasons = [payload["reason"] for payload in ended if payload["role"] == "workbench"]
        self.assertEqual(reasons, ["out_of_memory"])
        lines = run("journalctl", "--no-pager", "-o", "json", f"_UID={self.who.pw_uid}").stdout.splitlines()
        told = [json.loads(line) for line in lines]
        told = [
            line["MESSAGE"] for line in told if line.get("KLBR_GENERATION") and "ended" in line["MESSAGE"]
        ]
        self.assertTrue(any("out_of_memory" in line for line in told), told)

    def test_the_hosts_own_unit_is_not_the_one_that_pays(self) -> None:
        drop_in("user", "klbr.service", "[Service]\nMemoryMax=150M\n")
        self.systemctl("daemon-reload")
        self.up(MANUAL + LIMITS)
        host = self.host_pid()
        self.cell(GREEDY)
        self.assertEqual(self.host_pid(), host)
