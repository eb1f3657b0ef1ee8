"""Host requests of cells."""

from __future__ import annotations

import time
import unittest

from tests.host import Host, joined


class Requests(unittest.TestCase):
    def test_every_module_is_importable_and_every_request_goes_out_as_the_protocol_has_it(self):
        calls = {
            "local.send": ("'hello'", {"text": "hello"}),
            "runtime.inspect": ("", {}),
            "runtime.instructions": ("", {}),
            "hooks.list": ("", {}),
            "hooks.describe": ("'delivery.review'", {"slot": "delivery.review"}),
            "skills.index": ("", {}),
            "skills.load": ("'w'", {"id": "w"}),
            "workspace.info": ("", {}),
            "workspace.run": (
                "['ls']",
                {"argv": ["ls"], "cwd": ".", "env": {}, "timeout_ms": 120_000, "max_output_bytes": 750_000},
            ),
            "evidence.resolve": ("('event:1',)", {"refs": ["event:1"]}),
            "behavior.activate": ("'/p', 3", {"path": "/p", "expected_epoch": 3}),
            "maintenance.originate": ("'p', 'r'", {"purpose": "p", "reason": "r", "evidence_refs": []}),
            "maintenance.assess": ("'w', outcome='o'", {"work_item_id": "w", "outcome": "o"}),
            "orientation.stage": (
                "'c', 't', 'g'",
                {"candidate_id": "c", "text": "t", "target": "g", "scope": {"kind": "global"}},
            ),
            "orientation.current": ("{'kind': 'session'}", {"scope": {"kind": "session"}}),
            "orientation.adopt": ("'c', 'o'", {"candidate_id": "c", "operation_id": "o"}),
            "frontier.select": ("", {}),
            "peer.open": ("", {"mode": "independent", "evidence": []}),
            "agents.open": ("", {"mode": "independent", "evidence": []}),
            "peer.send": (
                "'p', 'r', 'c'",
                {"peer_id": "p", "request_id": "r", "content": "c", "evidence": []},
            ),
            "peer.message": (
                "'p', 'r', 'c', ['event:2']",
                {"peer_id": "p", "request_id": "r", "content": "c", "evidence": ["event:2"]},
            ),
            "peer.result": ("'r', wait_ms=5000", {"request_id": "r", "wait_ms": 5000}),
            "peer.submit_result": ("'r', {'a': (1, None)}", {"request_id": "r", "result": {"a": [1, None]}}),
            "peer.cancel": ("'r'", {"request_id": "r"}),
            "peer.get": ("'p'", {"peer_id": "p"}),
            "peer.list": ("", {}),
            "peer.stop": ("'p'", {"peer_id": "p", "drain": True}),
            "remote.ensure": ("'t'", {"target": "t"}),
            "remote.call": (
                "'t', 'n', 'g', 'o'",
                {
                    "target": "t",
                    "namespace_id": "n",
                    "namespace_generation": "g",
                    "operation_id": "o",
                    "operation": "execute",
                    "payload": {},
                },
            ),
            "remote.cancel": (
                "'n', 'g', 'o'",
                {"namespace_id": "n", "namespace_generation": "g", "operation_id": "o"},
            ),
            "remote.close": ("'n', 'g'", {"namespace_id": "n", "namespace_generation": "g"}),
            "runtime.wait": ("30", {"seconds": 30, "reason": "waiting for input"}),
        }
        from klbr.vocabulary import REQUESTS

        self.assertEqual(set(calls), set(REQUESTS))
        with Host() as host:
            for method, (arguments, fields) in calls.items():
                module = method.partition(".")[0]
                result = host.run(f"from klbr import {module} as m\nawait klbr.{method}({arguments})")
                with self.subTest(method):
                    self.assertEqual(
                        result["status"], "yielded" if method == "runtime.wait" else "ok", result
                    )
                    self.assertEqual(host.requests[-1]["request"], {"method": method, **fields})

    def test_faulty_arguments_are_refused_here_and_nothing_is_sent(self):
        with Host() as host:
            for call, error in (
                ("local.send(3)", "TypeError"),
                ("local.send()", "TypeError"),
                ("local.send('a', other=1)", "TypeError"),
                ("local.send('\\ud800')", "UnicodeEncodeError"),
                ("runtime.wait(True)", "TypeError"),
                ("runtime.wait(0)", "ValueError"),
                ("runtime.wait(601)", "ValueError"),
                ("runtime.wait(float('nan'))", "ValueError"),
                ("workspace.run('ls')", "TypeError"),
                ("workspace.run([])", "ValueError"),
                ("workspace.run([1])", "TypeError"),
                ("workspace.run(['ls'], env={'A': 1})", "TypeError"),
                ("workspace.run(['ls'], timeout_ms=1.5)", "TypeError"),
                ("workspace.run(['ls'], timeout_ms=-1)", "TypeError"),
                ("behavior.activate('/p', True)", "TypeError"),
                ("evidence.resolve('event:1')", "TypeError"),
                ("peer.stop('p', drain=1)", "TypeError"),
                ("peer.submit_result('r', {1: 2})", "TypeError"),
                ("peer.submit_result('r', {1, 2})", "TypeError"),
                ("peer.submit_result('r', float('inf'))", "ValueError"),
                ("peer.submit_result('r', 2**63)", "ValueError"),
                ("orientation.current({'kind': 'all'})", "TypeError"),
            ):
                result = host.run(f"await {call}")
                with self.subTest(call):
                    self.assertIn(f"{error}: ", result["error"] or "")
            deep = host.run("v = []\nfor _ in range(500): v = [v]\nawait peer.submit_result('r', v)")
            circle = host.run("v = []; v.append(v)\nawait peer.submit_result('r', v)")
            self.assertIn("ValueError", deep["error"])
            self.assertIn("ValueError", circle["error"])
            self.assertEqual(host.requests, [])

    def test_what_does_not_fit_into_a_frame_is_too_large(self):
        code = "try:\n    await local.send('x' * 1_048_576)\nexcept klbr.HostError as e: r = e.code\nr"
        with Host() as host:
            self.assertEqual(joined(host.run(code), "result"), "'too_large'")
            self.assertEqual(joined(host.run("await local.send('y'); 1"), "result"), "1")

    def test_a_refused_request_raises_with_code_and_message(self):
        error = {"kind": "error", "code": "not_found", "message": "no such skill"}
        with Host(reply=lambda request: error) as host:
            code = "try: await skills.load('x')\nexcept klbr.HostError as e: print(e.code, '|', e.message, '|', e)"

            self.assertEqual(
                joined(host.run(code), "stdout"), "not_found | no such skill | not_found: no such skill\n"
            )
            self.assertIn("HostError: not_found: no such skill", host.run("await skills.index()")["error"])

    def test_identities_count_from_one_in_every_cell(self):
        with Host() as host:
            for _ in range(2):
                host.run("import asyncio\nawait asyncio.gather(*(local.send(str(i)) for i in range(3)))")

            identities = [(r["execution_id"], r["id"], r["request"]["text"]) for r in host.requests]
            self.assertEqual(
                identities, [(f"e-{c}", f"r-{n}", str(n - 1)) for c in (1, 2) for n in (1, 2, 3)]
            )

    def test_replies_out_of_order_find_their_requests(self):
        with Host(reply=lambda request: None) as host:
            operation = host.start_cell(
                "import asyncio\nawait asyncio.gather(local.send('a'), local.send('b'))"
            )
            while len(host.requests) < 2:
                time.sleep(0.01)
            for request in reversed(host.requests):
                host.answer(request, {"kind": "ok", "value": request["request"]["text"]})

            self.assertEqual(joined(host.wait_for(operation), "result"), "['a', 'b']")

    def test_late_and_foreign_replies_are_discarded(self):
        with Host(reply=lambda request: None) as host:
            first = host.start_cell(
                "import asyncio\ntry: await asyncio.wait_for(local.send('a'), 0.1)\nexcept TimeoutError: print('gave up')"
            )
            self.assertEqual(joined(host.wait_for(first), "stdout"), "gave up\n")
            second = host.start_cell("await local.send('b')")
            while len(host.requests) < 2:
                time.sleep(0.01)
            late, live = host.requests
            host.answer(late, {"kind": "ok", "value": "late"})
            host.answer({**live, "id": "r-99"}, {"kind": "ok", "value": "unknown"})
            host.answer(live, {"kind": "ok", "value": "live"})
            host.answer(live, {"kind": "ok", "value": "twice"})

            self.assertEqual(joined(host.wait_for(second), "result"), "'live'")

    def test_a_task_of_an_ended_cell_has_no_scope(self):
        code = """
import asyncio
codes = []
async def later(pause):
    try:
        await asyncio.sleep(pause)
        await local.send('late')
    except klbr.HostError as e: codes.append(e.code)
t = asyncio.create_task(later(0.2))
"""
        with Host() as host:
            host.run(code)
            result = host.run("await asyncio.sleep(0.4)\ncodes")

            self.assertEqual(joined(result, "result"), "['scope_expired']")
            self.assertEqual(host.requests, [])

    def test_a_request_in_flight_at_the_end_of_its_cell_is_told_so(self):
        code = """
import asyncio
codes = []
async def ask():
    try: await local.send('x')
    except klbr.HostError as e: codes.append(e.code)
t = asyncio.create_task(ask())
await asyncio.sleep(0.1)
"""
        with Host(reply=lambda request: None) as host:
            host.run(code)

            self.assertEqual(joined(host.run("await t\ncodes"), "result"), "['scope_expired']")

    def test_nothing_runs_below_an_accepted_wait(self):
        with Host() as host:
            result = host.run("print('above')\nawait runtime.wait(3)\nprint('below')")

            self.assertEqual((result["status"], result["error"]), ("yielded", None))
            self.assertEqual(joined(result, "stdout"), "above\n")

    def test_a_cell_that_catches_the_end_of_its_turn_gets_no_scope_back(self):
        code = """
try: await runtime.wait()
except BaseException as e: print(type(e).__name__)
try: await local.send('more')
except klbr.HostError as e: print(e.code)
"""
        with Host() as host:
            result = host.run(code)

            self.assertEqual(result["status"], "yielded")
            self.assertEqual(joined(result, "stdout"), "TurnYielded\nscope_expired\n")
            self.assertEqual(len(host.requests), 1)

    def test_an_error_behind_an_accepted_wait_is_still_seen(self):
        code = "try: await runtime.wait()\nexcept BaseException: 1/0"
        with Host() as host:
            result = host.run(code)

            self.assertEqual((result["status"], result["error"]), ("yielded", None))
            self.assertIn("ZeroDivisionError", joined(result, "stderr"))

    def test_a_refused_wait_does_not_end_the_cell(self):
        error = {"kind": "error", "code": "invalid_request", "message": "no"}
        with Host(reply=lambda request: error) as host:
            code = "try: await runtime.wait()\nexcept klbr.HostError: pass\n'on'"

            self.assertEqual(joined(host.run(code), "result"), "'on'")

    def test_an_accepted_wait_ends_the_turn_though_nobody_waits_for_it_any_more(self):
        code = "import asyncio\ntry: await asyncio.wait_for(runtime.wait(), 0.2)\nexcept TimeoutError: await asyncio.sleep(1)"
        with Host(reply=lambda request: None) as host:
            operation = host.start_cell(code)
            time.sleep(0.5)
            host.answer(host.requests[0], {"kind": "ok", "value": {"status": "waiting"}})

            self.assertEqual(host.wait_for(operation)["status"], "yielded")

    def test_requests_work_inside_of_another_loop(self):
        code = "import asyncio\nasync def m(): return await local.send('nested')\nasyncio.run(m())['text']"
        with Host() as host:
            self.assertEqual(joined(host.run(code), "result"), "'nested'")
            self.assertEqual(joined(host.run("(await local.send('again'))['text']"), "result"), "'again'")


if __name__ == "__main__":
    unittest.main()
