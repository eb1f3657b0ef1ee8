"""The operator's interface, spoken by systemd's own client."""

from __future__ import annotations

import json
import shutil
import subprocess
import unittest
from typing import Any

from machine import UserMachine

INTERFACE = "org.klbr.Operator"


@unittest.skipUnless(shutil.which("varlinkctl"), "this systemd has no varlinkctl")
class Varlinkctl(UserMachine):
    def setUp(self) -> None:
        super().setUp()
        self.socket = str(self.runtime / "klbr.sock")

    def ctl(self, *argv: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        return self.as_user("varlinkctl", "--no-pager", *argv, check=check)

    def call(self, method: str, parameters: str = "{}") -> dict[str, Any]:
        done = self.ctl("--json=short", "call", self.socket, f"{INTERFACE}.{method}", parameters)
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer

    def test_it_finds_its_way(self) -> None:
        # The first call starts the host.
        self.configure()
        self.systemctl("start", "klbr.socket")
        self.assertIn(INTERFACE, self.ctl("info", self.socket).stdout)
        listed = self.ctl("list-interfaces", self.socket).stdout.split()
        self.assertEqual(listed, [INTERFACE, "org.varlink.service"])
        described = self.ctl("introspect", self.socket, INTERFACE).stdout
        self.assertIn("method Status() -> (", described)

    def test_calls_streams_and_errors(self) -> None:
        self.up()
        self.assertEqual(self.call("Status")["status"]["containment"], "systemd")
        outcome = self.call("Exec", '{"session":"root","code":"6 * 7"}')["outcome"]
        self.assertIn("42", json.dumps(outcome))
        # A stream, as long as somebody listens.
        argv = ("varlinkctl", "--json=short", "--more", "call", self.socket, f"{INTERFACE}.Follow")
        follower = self.start_as_user(*argv, '{"session":"root","all":true,"since":0}')
        assert follower.stdout
        kinds = {json.loads(follower.stdout.readline().lstrip("\x1e"))["event"]["kind"] for _ in range(3)}
        follower.kill()
        follower.wait()
        self.assertTrue(kinds)
        # A typed error, by its name.
        done = self.ctl(
            "call", self.socket, f"{INTERFACE}.Send", '{"session":"nobody","text":"x"}', check=False
        )
        self.assertNotEqual(done.returncode, 0)
        self.assertIn(f"{INTERFACE}.UnknownSession", done.stdout + done.stderr)
