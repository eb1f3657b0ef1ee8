"""What a cell finds, keeps and shows when it fails."""

from __future__ import annotations

import unittest
from pathlib import Path

from tests.host import Host, joined


class Namespace(unittest.TestCase):
    def test_the_worker_leaves_no_names_of_its_own(self):
        with Host() as host:
            names = joined(host.run("sorted(n for n in globals() if not n.startswith('__'))"), "result")
            modules = "agents behavior evidence frontier hooks klbr local maintenance orientation peer remote"

            self.assertEqual(eval(names), [*modules.split(), "runtime", "skills", "workspace"])
            self.assertEqual(
                joined(host.run("__name__, __spec__, '__file__' in globals()"), "result")[:18],
                "('__main__', None,",
            )

    def test_classes_of_cells_can_be_pickled_and_inspected(self):
        with Host() as host:
            host.run("class K:\n    def m(self):\n        return 1\n    class Inner:\n        x = 2")
            text = joined(host.run("import pickle; pickle.loads(pickle.dumps(K())).m()"), "result")
            host.run("class Other: pass")
            source = joined(
                host.run("import inspect; print(inspect.getsource(K.Inner), inspect.getsource(K))"), "stdout"
            )

            self.assertEqual(text, "1")
            self.assertIn("class Inner:\n        x = 2", source)
            self.assertIn("class K:\n    def m", source)

    def test_future_statements_persist(self):
        with Host() as host:
            host.run("from __future__ import annotations")

            text = joined(host.run("def f(x: no_such_name): pass\nf.__annotations__"), "result")
            self.assertEqual(text, "{'x': 'no_such_name'}")

    def test_top_level_async_for_and_with(self):
        code = """
class A:
    async def __aenter__(self): return 'in'
    async def __aexit__(self, *_): pass
async def g():
    yield 1
    yield 2
async with A() as a:
    print(a)
async for n in g(): print(n)
[x async for x in g()]
"""
        with Host() as host:
            result = host.run(code)

            self.assertEqual((joined(result, "stdout"), joined(result, "result")), ("in\n1\n2\n", "[1, 2]"))

    def test_tracebacks_show_cells_and_no_worker(self):
        with Host() as host:
            host.run("def f():\n    return 1/0  # in the first cell")
            sync = host.run("f()")["error"]
            waiting = host.run("import asyncio\nawait asyncio.sleep(0)\nf()")["error"]
            refused = host.run("await local.send(b'')")["error"]

            for error in (sync, waiting, refused):
                self.assertNotIn("klbr/", error)
                self.assertTrue(error.startswith('Traceback (most recent call last):\n  File "<cell '), error)
            self.assertIn('File "<cell 1>", line 2, in f\n    return 1/0  # in the first cell', sync)
            self.assertIn('File "<cell 1>", line 2, in f', waiting)

    def test_long_errors_keep_their_beginning_and_their_end(self):
        with Host() as host:
            error = host.run("raise ValueError('x' * 1_000_000 + 'the end')")["error"]

            self.assertLessEqual(len(error.encode()), 65_536)
            self.assertTrue(error.startswith("Traceback"))
            self.assertTrue(error.endswith("the end\n"))

    def test_odd_errors_are_errors(self):
        with Host() as host:
            for code, word in (
                ("class E(Exception):\n def __str__(self): raise E\nraise E", "E"),
                ("class E(Exception):\n def __str__(self): return 3\nraise E", "E"),
                ("raise ExceptionGroup('g', [ValueError('\\ud800'), KeyError(1)])", "KeyError: 1"),
                ("def f(): f()\nf()", "RecursionError"),
                ("e = ValueError(); e.add_note('a note'); raise e", "a note"),
                ("a\0b", "null bytes"),
                ("import asyncio; raise asyncio.CancelledError", "CancelledError"),
                ("raise BaseException('base')", "base"),
                ("raise klbr.TurnYielded", "TurnYielded"),
                ("x = '" + "y" * 262_144 + "'", "262144"),
                ("(" * 3_000, "Error"),
            ):
                result = host.run(code)
                with self.subTest(code[:60]):
                    self.assertEqual(result["status"], "error")
                    self.assertIn(word, result["error"])

    def test_exit_with_a_text_or_a_number_is_an_error_and_else_fine(self):
        with Host() as host:
            statuses = [
                host.run(code)["status"]
                for code in ("exit()", "exit(0)", "quit(None)", "exit(1)", "exit('no')")
            ]

            self.assertEqual(statuses, ["ok", "ok", "ok", "error", "error"])

    def test_the_working_folder_is_imported_from_and_followed(self):
        with Host() as host:
            Path(host.folder, "here.py").write_text("x = 1")
            Path(host.folder, "sub").mkdir()
            Path(host.folder, "sub", "there.py").write_text("x = 2")

            text = joined(
                host.run("import here, os\nos.chdir('sub')\nimport there\nhere.x, there.x"), "result"
            )
            self.assertEqual(text, "(1, 2)")

    def test_site_packages_are_there_when_something_needs_them(self):
        with Host() as host:
            before = host.run("import sys; any('site-packages' in p for p in sys.path)")
            missing = host.run("import no_such_module_at_all")
            after = host.run(
                "any(p.endswith(('site-packages', 'dist-packages')) for p in sys.path), sys.path[0], exit"
            )

            self.assertEqual(joined(before, "result"), "False")
            self.assertIn("ModuleNotFoundError: No module named 'no_such_module_at_all'", missing["error"])
            self.assertEqual(joined(after, "result")[:11], "(True, '', ")
            self.assertIn("ends the cell", joined(after, "result"))

    def test_help_and_the_guide(self):
        with Host() as host:
            guide = joined(host.run("klbr.help()"), "stdout")
            page = joined(host.run("help(workspace)"), "stdout")
            doc = joined(host.run("print(local.__doc__)"), "stdout")

            self.assertIn("local.send", guide)
            self.assertIn("timeout_ms", page)
            self.assertIn("Speech", doc)


if __name__ == "__main__":
    unittest.main()
