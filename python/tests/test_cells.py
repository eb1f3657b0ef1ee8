"""Cells that broke other kernels: every case of `repl_cases.json` against a real worker."""

from __future__ import annotations

import json
import re
import threading
import time
import unittest

from tests.host import FIXTURES, HANG_S, Dead, Host, joined

INTERRUPT_GRACE_S = 4.0
CASES = json.loads((FIXTURES / "repl_cases.json").read_text())
STREAMS = ("stdout", "stderr", "result")
KNOWN = {
    *("status", "stdout", "stderr", "result", "error", "any", "native", "seen", "text_max_bytes"),
    *("records_max", "error_max_bytes", "truncated_bytes", "total_bytes", "within_ms"),
}


class Run:
    """One case: its cells, the steps between and during them, what came of it."""

    def __init__(self, host, case):
        self.host = host
        self.case = case
        self.operations = {}
        self.results = {}
        self.clocks = {}
        self.ended_at = None

    def play(self):
        steps = self.case.get("steps", [])
        for index, code in enumerate(self.case["cells"]):
            during = [step for step in steps if step.get("during") == index]
            self._play_cell(index, code, during)
            for step in steps:
                if step.get("after") == index:
                    self._do(step, index)

    def _play_cell(self, index, code, during):
        self.clocks.setdefault(index, time.monotonic())
        try:
            if index not in self.operations:
                self.operations[index] = self.host.start_cell(code)
            started = time.monotonic()
            for step in sorted(during, key=lambda step: step["at_ms"]):
                time.sleep(max(0.0, started + step["at_ms"] / 1e3 - time.monotonic()))
                self._do(step, index)
            self.results[index] = self.host.wait_for(self.operations[index], HANG_S)
        except (Dead, OSError):
            self.results[index] = None

    def _do(self, step, index):
        action = step["do"]
        if action == "wait":
            time.sleep(step["ms"] / 1e3)
        elif action == "interrupt":
            target = step.get("op_of_cell", index)
            if target == index and "at_ms" in step:
                self.clocks[index] = time.monotonic()
                timer = threading.Timer(INTERRUPT_GRACE_S, self._escalate, (self.operations[index],))
                timer.daemon = True
                timer.start()
            self.host.interrupt(self.operations[target])
        elif action == "execute_next":
            self.operations[index + 1] = self.host.start_cell(self.case["cells"][index + 1])
        elif action == "hard_stop":
            self.host.hard_stop()
        elif action == "shutdown":
            self.ended_at = time.monotonic()
            self.host.shutdown()
        else:
            raise AssertionError(f"unknown step {action}")

    def _escalate(self, operation):
        if operation not in self.host.completions:
            self.host.hard_stop()

    def duration_ms(self, index):
        completed = self.host.completions.get(self.operations[index], (time.monotonic(), None))[0]
        return (completed - self.clocks[index]) * 1e3


class CellCases(unittest.TestCase):
    def check_text(self, expected, read, what):
        known = {"equals", "contains", "absent", "regex", "count", "min", "max"}
        self.assertLessEqual(set(expected), known, what)
        # Raw output takes its own way: what is to come may still be in the pipe.
        deadline = time.monotonic() + 5.0
        while (
            any(word not in read() for word in expected.get("contains", ())) and time.monotonic() < deadline
        ):
            time.sleep(0.02)
        text = read()
        if "equals" in expected:
            self.assertEqual(text, expected["equals"], what)
        for word in expected.get("contains", ()):
            self.assertIn(word, text, what)
        for word in expected.get("absent", ()):
            self.assertNotIn(word, text, what)
        if "regex" in expected:
            self.assertIsNotNone(re.search(expected["regex"], text), f"{what}: {text[:300]!r}")
        for word, times in expected.get("count", {}).items():
            self.assertEqual(text.count(word), times, f"{what}: {word}")

    def check_number(self, expected, value, what):
        if not isinstance(expected, dict):
            self.assertEqual(value, expected, what)
            return
        self.assertLessEqual(set(expected), {"min", "max", "equals"}, what)
        self.assertGreaterEqual(value, expected.get("min", value), what)
        self.assertLessEqual(value, expected.get("max", value), what)
        self.assertEqual(value, expected.get("equals", value), what)

    def check_cell(self, run, index, expected):
        what = f"cell {index}"
        result = run.results[index]
        self.assertLessEqual(set(expected), KNOWN, what)
        status = "none" if result is None else result.get("status", "failed")
        self.assertIn(status, expected["status"], f"{what}: {result}")
        if "within_ms" in expected:
            self.assertLessEqual(run.duration_ms(index), expected["within_ms"], what)
        result = result or {"output": [], "error": None, "truncated_bytes": 0}
        error = result["error"] or ""
        texts = {stream: joined(result, stream) for stream in STREAMS}
        everything = "".join(record["text"] for record in result["output"]) + error
        shown = sum(len(record["text"].encode()) for record in result["output"])
        for stream in STREAMS:
            if stream in expected:
                self.check_text(expected[stream], lambda s=stream: texts[s], f"{what} {stream}")
        if "error" in expected:
            self.check_text(expected["error"], lambda: error, f"{what} error")
        if "any" in expected:
            self.check_text(expected["any"], lambda: everything, f"{what} any")
        if "native" in expected:
            self.check_text(expected["native"], run.host.text, f"{what} native")
        if "seen" in expected:
            self.check_text(expected["seen"], lambda: everything + run.host.text(), f"{what} seen")
        if "total_bytes" in expected:
            self.check_number(expected["total_bytes"], shown + result["truncated_bytes"], what)
        if "truncated_bytes" in expected:
            self.check_number(expected["truncated_bytes"], result["truncated_bytes"], what)
        # Bounds of the protocol hold for every cell, named in the case or not.
        self.assertLessEqual(shown, expected.get("text_max_bytes", 65_536), what)
        self.assertLessEqual(len(result["output"]), expected.get("records_max", 256), what)
        self.assertLessEqual(len(error.encode()), expected.get("error_max_bytes", 65_536), what)

    def check_after(self, run, expected):
        self.assertLessEqual(set(expected), {"worker", "descendants", "zombies", "exit", "within_ms"})
        process = run.host.process
        if expected["worker"] == "dead":
            process.wait(HANG_S)
        elif expected["worker"] == "alive":
            self.assertIsNone(process.poll(), run.host.text(2))
            self.assertEqual(joined(run.host.run("6 * 7"), "result"), "42")
        if "within_ms" in expected:
            self.assertLessEqual((time.monotonic() - run.ended_at) * 1e3, expected["within_ms"])
        if run.ended_at is not None:
            self.assertEqual(process.returncode, 0)
        if "signal" in expected.get("exit", {}):
            self.assertEqual(process.returncode, -expected["exit"]["signal"])
        for name, count in (("descendants", lambda: len(run.host.descendants())), ("zombies", run.host.reap)):
            if name in expected:
                deadline = time.monotonic() + 5.0
                while count() != expected[name] and time.monotonic() < deadline:
                    run.host.reap()
                    time.sleep(0.02)
                self.assertEqual(count(), expected[name], name)


def _test(case):
    def test(self):
        with Host() as host:
            run = Run(host, case)
            run.play()
            for index, expected in enumerate(case["expect"]["cells"]):
                self.check_cell(run, index, expected)
            self.check_after(run, case["expect"]["after"])

    test.__doc__ = case["expect"]["text"]
    return test


for _case in CASES:
    setattr(CellCases, "test_" + _case["id"].replace("-", "_"), _test(_case))


class CaseFile(unittest.TestCase):
    def test_every_case_is_there_and_runs(self):
        tests = [name for name in dir(CellCases) if name.startswith("test_")]

        self.assertEqual(len(tests), 56)


if __name__ == "__main__":
    unittest.main()
