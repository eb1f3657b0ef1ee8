"""What the journal tells of a host, and what it must never hold."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from machine import MANUAL, UserMachine, run, until

SECRET = "word-of-the-model-1f0c"
INPUT = "word-of-the-operator-77ab"
STEPS = [
    {"text": SECRET, "code": f"1 / 0  # {SECRET}"},
    {"code": f'from klbr import local; await local.send("{SECRET}")'},
    {"text": SECRET},
]
READY = "13f9fe0742190959f6797d94eb30e594"
TURN_STARTED = "248fbeb4aa71051fc9d83ebf9cb7b235"
TURN_ENDED = "f5a709a1344261b9ccfa70bb351c3698"
CELL_ENDED = "62519396141917c38d1aca96d60b0bbf"
WORKER_STARTED = "2f1b49fa71615c65160ec49ccc53d276"


class Journal(UserMachine):
    def setUp(self) -> None:
        super().setUp()
        # What a user may read by himself is what is split off for him, on disk.
        Path("/var/log/journal").mkdir(exist_ok=True)
        run("systemctl", "restart", "systemd-journald.service")
        run("journalctl", "--flush")
        self.since = f"@{time.time():.3f}"

    def entries(self, *match: str) -> list[dict[str, Any]]:
        run("journalctl", "--sync")
        done = self.as_user(
            "journalctl", "--user", "-u", "klbr", "--since", self.since, "-o", "json", "--all", *match
        )
        return [json.loads(line) for line in done.stdout.splitlines()]

    def turn(self) -> None:
        folder = self.home / ".config/klbr"
        self.configure('[route]\nuse = "s"\n[routes.s]\nkind = "script"\nscript = "steps.jsonl"\n')
        script = folder / "steps.jsonl"
        script.write_text("".join(json.dumps(step) + "\n" for step in STEPS))
        os.chown(script, self.who.pw_uid, self.who.pw_gid)
        self.systemctl("start", "klbr.socket")
        self.klbr("send", INPUT, "--wait")
        until("the turn has ended", lambda: any(e.get("MESSAGE_ID") == TURN_ENDED for e in self.entries()))

    def test_a_whole_turn_is_told_in_its_order_with_its_fields(self) -> None:
        self.turn()

        told = self.entries("KLBR_SESSION=root")

        ids = [entry["MESSAGE_ID"] for entry in told]
        self.assertEqual([told[0]["_SYSTEMD_USER_UNIT"]], ["klbr.service"])
        positions = [ids.index(TURN_STARTED), ids.index(CELL_ENDED), ids.index(TURN_ENDED)]
        self.assertEqual(positions, sorted(positions))
        self.assertEqual(ids.count(CELL_ENDED), 2)
        events = [int(entry["KLBR_EVENT"]) for entry in told]
        self.assertEqual(events, sorted(events))
        cell = told[ids.index(CELL_ENDED)]
        self.assertRegex(cell["KLBR_EXECUTION"], r"^x-\d+$")
        self.assertEqual(cell["KLBR_GENERATION"], "g-1")
        self.assertTrue(cell["KLBR_UNIT"].startswith("klbr-gen-1-"), cell)
        self.assertRegex(cell["MESSAGE"], r"^a cell ended after \d+ ms: error$")
        started = told[ids.index(WORKER_STARTED)]
        self.assertEqual(started["PRIORITY"], "5")
        kinds = {row["event_id"]: row["kind"] for row in self.objects("log")}
        self.assertEqual(kinds[int(cell["KLBR_EVENT"])], "cell.completed")

    def test_no_word_of_model_or_operator_is_in_it(self) -> None:
        self.turn()
        self.klbr("exec", f"raise ValueError('{SECRET}')", check=False)
        self.systemctl("stop", "klbr.service")
        self.assertTrue(self.entries(f"MESSAGE_ID={READY}"))
        everything = run("journalctl", "-o", "export", "--all", "--since", self.since).stdout
        self.assertNotIn(SECRET, everything)
        self.assertNotIn(INPUT, everything)

    def test_the_catalog_explains(self) -> None:
        run("journalctl", "--update-catalog")
        self.up(MANUAL)
        self.cell("6 * 7")
        self.assertTrue(self.entries(f"MESSAGE_ID={WORKER_STARTED}"))
        done = self.as_user(
            "journalctl", "--user", "-u", "klbr", "--since", self.since, "-x", "KLBR_SESSION=root"
        )
        self.assertIn("A worker of session root started", done.stdout)
        self.assertIn("Variables of\n", done.stdout.replace("░░ ", ""))

    def test_a_key_in_the_wrong_place_is_not_repeated(self) -> None:
        self.configure(MANUAL + 'api_key = "sk-in-the-wrong-place"\n')
        self.systemctl("start", "klbr.socket")
        done = self.klbr("status", check=False)
        self.assertEqual(done.returncode, 6)
        everything = run("journalctl", "-o", "export", "--all", "--since", self.since).stdout
        self.assertIn("api_key", everything)
        self.assertNotIn("sk-in-the-wrong-place", everything + done.stderr)
