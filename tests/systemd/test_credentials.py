"""The key of a route: the host has it, and nobody else has."""

from __future__ import annotations

import http.server
import json
import os
import secrets
import threading
from pathlib import Path
from typing import Any

from machine import UserMachine, drop_in, run


class Model(http.server.BaseHTTPRequestHandler):
    """A route that says one word, to whoever has the key."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers["Authorization"] != f"Bearer {self.server.key}":  # type: ignore[attr-defined]
            self.send_error(401)
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        for delta, finish in (({"role": "assistant", "content": "pong"}, None), ({}, "stop")):
            choice = {"index": 0, "delta": delta, "finish_reason": finish}
            self.wfile.write(b"data: " + json.dumps({"choices": [choice]}).encode() + b"\n\n")
        self.wfile.write(b"data: [DONE]\n\n")

    def log_message(self, *_: Any) -> None:
        """Quietly: what it would print is no news."""


class Credentials(UserMachine):
    def setUp(self) -> None:
        super().setUp()
        self.key = f"sk-{secrets.token_hex(16)}"
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Model)
        server.key = self.key  # type: ignore[attr-defined]
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        self.route = (
            '[route]\nuse = "m"\n[routes.m]\n'
            f'base_url = "http://127.0.0.1:{server.server_port}/v1"\nmodel = "m"\n'
            'api_key_credential = "api-key"\n'
        )

    def key_file(self) -> Path:
        file = self.home / ".api-key"
        file.touch(mode=0o600)
        file.write_text(self.key + "\n")
        os.chown(file, self.who.pw_uid, self.who.pw_gid)
        self.addCleanup(file.unlink)
        return file

    def given(self, line: str) -> None:
        drop_in("user", "klbr.service", f"[Service]\n{line}\n")
        self.systemctl("daemon-reload")
        self.up(self.route)
        self.assertIn("pong", self.klbr("send", "ping", "--wait").stdout)

    def folder(self) -> Path:
        """Where the manager puts what the unit was given."""
        return self.runtime / "credentials/klbr.service"

    def test_the_key_is_where_it_belongs_and_nowhere_else(self) -> None:
        file = self.key_file()
        self.given(f"LoadCredential=api-key:{file}")
        host = self.host_pid()
        self.assertEqual(self.cell("1"), "1")
        self.assertTrue(self.generations())

        places = {
            "systemctl show": self.systemctl("show", "--all", "klbr.service", *self.generations()),
            "manager": self.systemctl("show-environment") + self.systemctl("show"),
            "journal": run("journalctl", "--no-pager", "-o", "export").stdout,
            "log": self.klbr("log", "--json").stdout,
            "status": self.klbr("status", "--json").stdout + self.klbr("doctor", "--json").stdout,
        }
        for process in Path("/proc").glob("[0-9]*"):
            for name in ("environ", "cmdline"):
                try:
                    places[f"{process}/{name}"] = (process / name).read_text(errors="replace")
                except OSError:
                    continue
        for name, text in places.items():
            self.assertTrue(self.key not in text, name)
        self.assertIn(f"/proc/{host}/environ", places)
        for path in (self.home / ".local/state/klbr", self.home / ".config/klbr", self.home / "klbr"):
            for found in path.rglob("*"):
                self.assertFalse(found.is_file() and self.key.encode() in found.read_bytes(), found)

        # No core dump: none is allowed, and the kernel would not make one.
        limits = Path(f"/proc/{host}/limits").read_text().splitlines()
        core = next(line for line in limits if line.startswith("Max core file size"))
        self.assertEqual(core.split()[4:6], ["0", "0"])
        self.assertEqual(Path(f"/proc/{host}/environ").stat().st_uid, 0, "it can be dumped")

    def test_a_worker_cannot_read_it(self) -> None:
        file = self.key_file()
        self.given(f"LoadCredential=api-key:{file}")
        given = self.folder() / "api-key"
        self.assertEqual(given.read_text().strip(), self.key)
        host = self.host_pid()
        places = [
            str(given),
            f"/proc/{host}/root{given}",
            f"/proc/{host}/environ",
            f"/proc/{host}/mem",
            f"/proc/{host}/fd",
        ]
        tried = self.cell(
            "import os\n"
            f"for path in {places!r}:\n"
            "    try:\n"
            "        found = os.listdir(path) if path.endswith('fd') else open(path, 'rb').read(1)\n"
            "    except OSError as error: print(type(error).__name__)\n"
            "    else: print(path, found)\n"
            "print('CREDENTIALS_DIRECTORY' in os.environ)\n"
        ).splitlines()
        allowed = {"PermissionError", "FileNotFoundError", "ProcessLookupError"}
        self.assertEqual(len(tried), len(places) + 1, tried)
        self.assertLessEqual(set(tried[:-1]), allowed)
        self.assertEqual(tried[-1], "False")

    def test_what_is_wrong_with_it_is_said(self) -> None:
        # Nothing is given.
        self.configure(self.route)
        self.systemctl("start", "klbr.socket")
        done = self.klbr("status", check=False)
        self.assertNotEqual(done.returncode, 0, done)
        self.assertIn("LoadCredential=api-key:PATH", done.stderr)
        # Something with another name is.
        drop_in("user", "klbr.service", f"[Service]\nLoadCredential=other:{self.key_file()}\n")
        self.systemctl("daemon-reload")
        self.systemctl("restart", "klbr.service")
        done = self.klbr("status", check=False)
        self.assertRegex(done.stderr, r"the credential \S+/api-key cannot be read.*LoadCredential=")
        self.assertNotIn(self.key, done.stderr)
