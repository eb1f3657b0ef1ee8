#!/usr/bin/env -S python3 -I -S
"""A worker that breaks the protocol in one way, once; any other worker is the real one.

Stands where the configuration's `python` points to. The file `mode` beside it says what to do, and is removed
when it is done: the next worker is a real one again.
"""

import json
import os
import signal
import socket
import struct
import sys
import time

here = os.path.dirname(os.path.abspath(__file__))
options = dict(zip(sys.argv[1:], sys.argv[2:], strict=False))
mode_file = os.path.join(here, "mode")
try:
    with open(mode_file) as file:
        role, mode = file.read().split()
except FileNotFoundError:
    role = mode = None
if role != options["--role"]:
    os.execvp("python3", ["python3", *sys.argv[1:]])
os.unlink(mode_file)


def freeze():
    while True:
        time.sleep(60)


if mode == "exits_at_once":
    sys.exit(3)
if mode == "stopped_before_hello":
    os.kill(os.getpid(), signal.SIGSTOP)
if mode == "never_connects":
    freeze()
if mode == "closed_standard_streams":
    for descriptor in (0, 1, 2):
        os.close(descriptor)
    os.execvp("python3", ["python3", *sys.argv[1:]])

connection = socket.socket(socket.AF_UNIX)
connection.connect(options["--socket"])
with open(options["--token-file"]) as file:
    token = file.read()
os.unlink(options["--token-file"])


def send(message):
    envelope = {"version": 1, "session_id": options["--session"], "generation": options["--generation"]}
    payload = json.dumps({**envelope, "message": message}).encode()
    connection.sendall(struct.pack(">I", len(payload)) + payload)


def exactly(count):
    data = b""
    while len(data) < count:
        piece = connection.recv(count - len(data))
        if not piece:
            sys.exit(9)
        data += piece
    return data


def receive():
    (length,) = struct.unpack(">I", exactly(4))
    return json.loads(exactly(length))["message"]


def await_shutdown():
    while receive()["kind"] != "shutdown":
        pass


def end_when_told():
    await_shutdown()
    sys.exit(0)


def complete(operation, text="fine", status="ok"):
    output = [{"stream": "result", "text": text}]
    cell = {"kind": "cell", "status": status, "output": output, "truncated_bytes": 0, "error": None}
    send({"kind": "completed", "id": operation, "result": cell})


def act_as_hook(mode, call):
    operation = call["id"]
    if mode == "hook_fails":
        send({"kind": "completed", "id": operation, "result": {"kind": "failed", "error": "no opinion"}})
    elif mode == "hook_answers_nonsense":
        value = {"action": "allow", "because": "unknown field"}
        send({"kind": "completed", "id": operation, "result": {"kind": "hook", "value": value}})
    elif mode == "hook_completes_a_cell":
        complete(operation)
    elif mode == "hook_completes_another":
        send({"kind": "completed", "id": "op-77", "result": {"kind": "hook", "value": {"action": "allow"}}})
    elif mode == "hook_exits":
        sys.exit(5)
    elif mode == "hook_speaks_to_the_operator":
        request = {"method": "local.send", "text": "from a hook"}
        send({"kind": "host_request", "id": "r-1", "execution_id": operation, "request": request})
        code = receive()["result"]["code"]
        send({"kind": "completed", "id": operation, "result": {"kind": "failed", "error": code}})
    elif mode != "hook_hangs":
        raise SystemExit(f"no such mode: {mode}")


def ask(number, execution):
    request = {"method": "runtime.inspect"}
    send({"kind": "host_request", "id": f"r-{number}", "execution_id": execution, "request": request})


hello = {
    "kind": "hello",
    "token": token,
    "role": role,
    "revision": None,
    "slots": [],
    "skills_revision": None,
}
if role == "hooks":
    hello["slots"] = ["attention.plan", "delivery.review"]
    hello["revision"] = os.path.basename(options["--release"])
if mode == "silent_before_hello":
    freeze()
if mode == "half_a_frame_before_hello":
    connection.sendall(struct.pack(">I", 200) + b'{"version":1')
    freeze()
if mode == "wrong_token":
    hello["token"] = "0" * len(token)
if mode == "wrong_release":
    hello["revision"] = "0" * 64
if mode == "wrong_role":
    hello["role"] = "hooks"
if mode == "not_hello_first":
    complete("x-1")
    freeze()
send(hello)
if mode == "hello_twice":
    send(hello)
    freeze()
if mode == "killed_while_idle":
    time.sleep(0.2)
    os.kill(os.getpid(), signal.SIGKILL)
if mode == "completes_without_a_cell":
    complete("x-1")
    freeze()

started = receive()
operation = started["id"]
if mode.startswith("hook_"):
    act_as_hook(mode, started)
elif mode == "frame_too_large":
    connection.sendall(b"\xff\xff\xff\xff")
elif mode == "frame_of_length_zero":
    connection.sendall(b"\0\0\0\0")
elif mode == "not_json":
    connection.sendall(struct.pack(">I", 5) + b"hello")
elif mode == "half_a_frame":
    connection.sendall(struct.pack(">I", 200) + b'{"version":1')
elif mode == "closes_in_a_frame":
    connection.sendall(struct.pack(">I", 200) + b'{"version":1')
    connection.close()
elif mode == "closes_its_connection":
    connection.close()
elif mode == "stopped_in_a_cell":
    os.kill(os.getpid(), signal.SIGSTOP)
elif mode == "killed_in_a_cell":
    os.kill(os.getpid(), signal.SIGKILL)
elif mode == "completes_another":
    complete("x-of-nobody")
elif mode == "yields_without_a_wait":
    complete(operation, status="yielded")
elif mode == "completes_twice":
    complete(operation)
    complete(operation)
elif mode == "speaks_as_host":
    send({"kind": "interrupt", "id": operation})
elif mode == "thousand_requests":
    codes = {}
    for number in range(1000):
        ask(number, operation)
        code = receive()["result"].get("code", "ok")
        codes[code] = codes.get(code, 0) + 1
    complete(operation, json.dumps(codes, sort_keys=True))
    end_when_told()
elif mode == "foreign_scope":
    ask(1, "x-of-nobody")
    complete(operation, receive()["result"]["code"])
    end_when_told()
elif mode == "asks_and_never_reads":
    for number in range(1_000_000):
        ask(number, operation)
elif mode == "floods_its_streams":
    for _ in range(1600):
        os.write(1, b"o" * 65536)
        os.write(2, b"e" * 65536)
    complete(operation)
    end_when_told()
elif mode == "killed_while_it_shuts_down":
    complete(operation)
    await_shutdown()
    os.kill(os.getpid(), signal.SIGKILL)
elif mode == "ignores_shutdown":
    complete(operation)
elif mode != "silent_in_a_cell":
    raise SystemExit(f"no such mode: {mode}")
freeze()
