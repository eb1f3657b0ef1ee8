"""What systemd-analyze says of the units, as they are installed and as they run."""

from __future__ import annotations

import re
from pathlib import Path

from machine import MANUAL, STAGE, UserMachine, drop_in, run
from test_system import SystemMachine

# At most this much exposure each, of 10.
USER_HOST_MAX = 1.9
SYSTEM_HOST_MAX = 1.2
WORKER_MAX = 0.5
# systemd-analyze takes whatever a user's manager runs for root's, and counts the network that is asked for.
USER_WORKER_MAX = 2.0
USER_WORKER_ALONE_MAX = 1.3


def exposure(said: str) -> float:
    found = re.search(r"Overall exposure level for \S+: ([0-9.]+)", said)
    assert found, said
    return float(found[1])


def installed(scope: str) -> list[str]:
    names = sorted(file.name for file in (STAGE / f"usr/lib/systemd/{scope}").glob("klbr*"))
    assert len(names) >= 3, names
    return [name.replace("@.", "@x.") for name in names]


class UserUnits(UserMachine):
    def test_verify_has_nothing_to_say(self) -> None:
        units = [f"/usr/lib/systemd/user/{name}" for name in installed("user")]
        done = self.as_user("systemd-analyze", "--user", "--man=no", "verify", *units)
        self.assertEqual(done.stdout + done.stderr, "")

    def test_exposure(self) -> None:
        for more, bound in (("", USER_WORKER_MAX), ("[sandbox]\nnetwork = false\n", USER_WORKER_ALONE_MAX)):
            self.up(MANUAL + more)
            self.systemctl("restart", "klbr.service")
            self.assertEqual(self.cell("1"), "1")
            units = self.generations()
            self.assertEqual(len(units), 2, units)
            for unit in units:
                said = self.as_user("systemd-analyze", "--user", "--no-pager", "security", unit).stdout
                self.assertLessEqual(exposure(said), bound, said)

        # As it is installed, not as a container has it.
        drop_in("user", "klbr.service", "[Service]\nProtectKernelLogs=yes\n", "box")
        self.systemctl("daemon-reload")
        said = self.as_user("systemd-analyze", "--user", "--no-pager", "security", "klbr.service").stdout
        self.assertLessEqual(exposure(said), USER_HOST_MAX, said)
        for unit in self.generations():
            # The reload has found nothing to complain about in what it wrote down itself.
            self.assertEqual(self.show(unit, "LoadState"), "loaded")


class SystemUnits(SystemMachine):
    def test_verify_has_nothing_to_say(self) -> None:
        units = [f"/usr/lib/systemd/system/{name}" for name in installed("system")]
        done = run("systemd-analyze", "--man=no", "verify", *units)
        self.assertEqual(done.stdout + done.stderr, "")

    def test_exposure(self) -> None:
        for unit in ("klbr.service", "klbr-worker@.service"):
            Path(f"/etc/systemd/system/{unit}.d/box.conf").unlink(missing_ok=True)
        run("systemctl", "daemon-reload")
        for unit, bound in (("klbr.service", SYSTEM_HOST_MAX), ("klbr-worker@x.service", WORKER_MAX)):
            said = run("systemd-analyze", "--no-pager", "security", unit).stdout
            self.assertLessEqual(exposure(said), bound, said)
