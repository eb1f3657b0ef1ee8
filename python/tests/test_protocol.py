"""The codec: what it takes, what it refuses, and that no stream of bytes makes it hang or grow."""

from __future__ import annotations

import json
import random
import tracemalloc
import unittest

from klbr import vocabulary
from klbr.protocol import (
    FRAME_BYTES_MAX,
    Encoder,
    FrameDecoder,
    FrameTooLarge,
    ProtocolError,
    decode,
    dump,
    parse_object,
)
from tests.host import FIXTURES

HELLO = {"kind": "hello", "token": "t", "role": "workbench", "revision": None, "slots": []}
HELLO["skills_revision"] = None
CELL = {"kind": "cell", "status": "ok", "output": [], "truncated_bytes": 0, "error": None}
REQUEST = {"kind": "host_request", "id": "r-1", "execution_id": "e-1"}
MESSAGES = [
    HELLO,
    {**HELLO, "role": "hooks", "revision": "ab", "slots": ["attention.plan", "delivery.review"]},
    {"kind": "execute", "id": "e-1", "code": "print('🙂')"},
    {"kind": "invoke", "id": "i-1", "slot": "delivery.review", "input": {"text": None}},
    {**REQUEST, "request": {"method": "local.send", "text": ""}},
    {**REQUEST, "request": {"method": "runtime.wait", "seconds": None, "reason": "r"}},
    {**REQUEST, "request": {"method": "runtime.wait", "seconds": 1.5, "reason": "r"}},
    {**REQUEST, "request": {"method": "agents.open", "mode": "independent", "evidence": ["event:1"]}},
    {"kind": "host_reply", "id": "r-1", "execution_id": "e-1", "result": {"kind": "ok", "value": [1, 2.5]}},
    {
        "kind": "host_reply",
        "id": "r-1",
        "execution_id": "e-1",
        "result": {"kind": "error", "code": "stale", "message": ""},
    },
    {"kind": "completed", "id": "e-1", "result": CELL},
    {
        "kind": "completed",
        "id": "e-1",
        "result": {**CELL, "status": "error", "output": [{"stream": "stderr", "text": "x"}], "error": "E"},
    },
    {"kind": "completed", "id": "i-1", "result": {"kind": "hook", "value": {"action": "allow"}}},
    {"kind": "completed", "id": "i-1", "result": {"kind": "failed", "error": "no"}},
    {"kind": "interrupt", "id": "e-1"},
    {"kind": "shutdown"},
]


def envelope(message, **fields):
    return {"version": 1, "session_id": "root", "generation": "g-1", "message": message, **fields}


def payload(message, **fields):
    return json.dumps(envelope(message, **fields)).encode()


def read(data):
    return decode(data, "root", "g-1")


class Accepted(unittest.TestCase):
    def test_every_message_comes_back_as_it_was(self):
        encoder = Encoder("root", "g-1")
        for message in MESSAGES:
            with self.subTest(message=message):
                (data,) = FrameDecoder().feed(encoder.frame(message))

                self.assertEqual(read(data), message)

    def test_every_request_of_the_vocabulary_is_accepted_with_exactly_its_fields(self):
        samples = {
            "any JSON value": None,
            "a string": "s",
            "a list of strings": [],
            "an object": {},
            "a table of strings": {},
            "a boolean": False,
            "a non-negative 64-bit integer": 2**63 - 1,
            "a number or null": None,
            vocabulary._SCOPE: {"kind": "session"},
        }
        for method, shape in vocabulary.REQUESTS.items():
            request = {"method": method, **{field: samples[kind] for field, kind in shape.items()}}
            with self.subTest(method=method):
                self.assertIsNone(vocabulary.fault_of_request(request))
                self.assertIsNotNone(vocabulary.fault_of_request({**request, "extra": 1}))
                for field in shape:
                    less = {name: value for name, value in request.items() if name != field}
                    self.assertIsNotNone(vocabulary.fault_of_request(less))

    def test_white_space_around_the_object(self):
        self.assertEqual(read(b" \t\r\n" + payload({"kind": "shutdown"}) + b"\n"), {"kind": "shutdown"})

    def test_depth_128_with_the_object_itself_as_the_first_level(self):
        value = nested(128 - 3)

        self.assertEqual(read(reply(value))["result"]["value"], json.loads(value))

    def test_wide_values_are_not_deep(self):
        value = json.dumps([[] for _ in range(1_000)] + [{"a": "[[[["}] * 200)

        self.assertEqual(read(reply(value))["result"]["value"], json.loads(value))

    def test_a_pair_of_surrogate_escapes_is_one_character(self):
        self.assertEqual(parse_object(b'{"a":"\\ud83d\\ude42"}'), {"a": "🙂"})
        self.assertEqual(parse_object(b'{"a":"\\\\ud800"}'), {"a": "\\ud800"})

    def test_largest_and_smallest_numbers(self):
        data = f'{{"a":{2**63 - 1},"b":{-(2**63)},"c":1.7e308,"d":-0.0,"e":1e-999,"f":{10**30}}}'

        self.assertEqual(parse_object(data.encode()), json.loads(data))


def nested(levels):
    """A list in a list, `levels` deep, as text."""
    return "[" * levels + "]" * levels


def reply(value):
    text = '{"version":1,"session_id":"root","generation":"g-1","message":{"kind":"host_reply","id":"r-1",'
    return f'{text}"execution_id":"e-1","result":{{"kind":"ok","value":{value}}}}}}}'.encode()


class Refused(unittest.TestCase):
    def assert_refused(self, data):
        with self.assertRaises(ProtocolError):
            read(data)

    def test_duplicate_keys_at_any_depth_and_after_escapes(self):
        for value in ('{"a":1,"a":2}', '[[{"b":{"a":1,"a":1}}]]', '{"a":1,"\\u0061":2}', '{"":1,"":1}'):
            self.assert_refused(reply(value))
        self.assert_refused(payload({"kind": "shutdown"})[:-1] + b',"version":1}')

    def test_what_is_no_json_number(self):
        for value in (
            "NaN",
            "Infinity",
            "-Infinity",
            "1e999",
            "-1e999",
            "01",
            "1.",
            ".5",
            "+1",
            "0x1",
            "1" * 400,
        ):
            self.assert_refused(reply(value))
            self.assert_refused(reply(f'{{"deep":[{value}]}}'))

    def test_lone_surrogates(self):
        for value in ('"\\ud800"', '"\\uDC00x"', '{"\\udfff":1}', '[["\\ud83d\\ud83d"]]', '"\\ude42\\ud83d"'):
            self.assert_refused(reply(value))
        self.assert_refused(b'{"a":"\xed\xa0\x80"}')

    def test_nesting_129(self):
        self.assert_refused(reply(nested(129 - 3)))
        self.assert_refused(reply(nested(100_000)))
        self.assert_refused(reply("[" * 500_000))
        self.assert_refused(reply('{"a":' * 126 + "1" + "}" * 126))

    def test_trailing_bytes(self):
        for tail in (b"{}", b"x", b"\0", b",", b"\xc2\xa0"):
            self.assert_refused(payload({"kind": "shutdown"}) + tail)

    def test_what_is_not_an_object_in_utf_8(self):
        for data in (
            b"[]",
            b"1",
            b'"x"',
            b"null",
            b"",
            b" ",
            b"\xff{}",
            b"\xef\xbb\xbf{}",
            b"{",
            b"{]",
            b"{'a':1}",
        ):
            self.assert_refused(data)

    def test_control_characters_in_strings(self):
        self.assert_refused(reply('"a\nb"'))

    def test_foreign_or_incomplete_envelopes(self):
        message = {"kind": "shutdown"}
        for fields in (
            {"version": 2},
            {"version": True},
            {"version": 1.0},
            {"version": "1"},
            {"session_id": "other"},
            {"session_id": 1},
            {"generation": "g-2"},
            {"generation": None},
            {"extra": 1},
        ):
            self.assert_refused(payload(message, **fields))
        for name in ("version", "session_id", "generation", "message"):
            whole = envelope(message)
            del whole[name]
            self.assert_refused(json.dumps(whole).encode())

    def test_unknown_missing_and_mistyped_fields_of_every_message(self):
        for message in MESSAGES:
            self.assert_refused(payload({**message, "extra": None}))
            for field in message:
                less = {name: value for name, value in message.items() if name != field}
                self.assert_refused(payload(less))
                if message["kind"] == "invoke" and field == "input":
                    continue
                self.assert_refused(payload({**message, field: 1.5}))
                self.assert_refused(payload({**message, field: [[]]}))

    def test_booleans_and_floats_where_an_integer_is_meant(self):
        for number in (True, False, 0.0, "0", None, -1, 2**63):
            self.assert_refused(
                payload({"kind": "completed", "id": "e-1", "result": {**CELL, "truncated_bytes": number}})
            )
            request = {"method": "behavior.activate", "path": "/p", "expected_epoch": number}
            self.assert_refused(payload({**REQUEST, "request": request}))

    def test_bad_identifiers(self):
        for name in ("", "a" * 129, "a b", "ä", "a/b", "a\n", 1, None, ["a"], "a\0"):
            self.assert_refused(payload({"kind": "interrupt", "id": name}))
        for name in ("a" * 128, "A.b_c-9"):
            self.assertEqual(read(payload({"kind": "interrupt", "id": name}))["id"], name)

    def test_words_outside_of_the_closed_sets(self):
        reply_error = {"kind": "error", "code": "made_up", "message": ""}
        for message in (
            {**HELLO, "role": "root"},
            {**HELLO, "slots": ["attention"]},
            {"kind": "invoke", "id": "i", "slot": "made.up", "input": {}},
            {"kind": "completed", "id": "e", "result": {**CELL, "status": "fine"}},
            {"kind": "completed", "id": "e", "result": {**CELL, "output": [{"stream": "log", "text": ""}]}},
            {"kind": "completed", "id": "e", "result": {**CELL, "output": [{"stream": "stdout"}]}},
            {"kind": "completed", "id": "e", "result": {"kind": "none"}},
            {"kind": "host_reply", "id": "r", "execution_id": "e", "result": reply_error},
            {**REQUEST, "request": {"method": "made.up"}},
            {**REQUEST, "request": {"method": ["local.send"], "text": ""}},
            {**REQUEST, "request": {"method": "orientation.current", "scope": {"kind": "all"}}},
            {"kind": "made_up"},
            {"kind": None},
            [],
            None,
        ):
            self.assert_refused(payload(message))


class Frames(unittest.TestCase):
    def test_lengths_outside_of_the_bounds_before_anything_is_kept(self):
        for size in (0, FRAME_BYTES_MAX + 1, 2**32 - 1):
            decoder = FrameDecoder()
            with self.assertRaises(ProtocolError):
                decoder.feed(size.to_bytes(4, "big"))

    def test_the_largest_frame(self):
        encoder = Encoder("root", "g-1")
        room = FRAME_BYTES_MAX - len(encoder.frame({"kind": "execute", "id": "e", "code": ""})) + 4
        frame = encoder.frame({"kind": "execute", "id": "e", "code": "x" * room})

        self.assertEqual(len(FrameDecoder().feed(frame)[0]), FRAME_BYTES_MAX)
        with self.assertRaises(FrameTooLarge):
            encoder.frame({"kind": "execute", "id": "e", "code": "x" * (room + 1)})

    def test_what_json_does_not_have_is_never_sent(self):
        encoder = Encoder("root", "g-1")
        for value, error in ((float("nan"), ValueError), (b"x", TypeError), ("\ud800", ValueError)):
            with self.assertRaises(error):
                encoder.frame({"kind": "completed", "id": "e", "result": {"kind": "hook", "value": value}})
        self.assertEqual(json.loads(dump({"a": [1, None, True, 'ä\n"\\']})), {"a": [1, None, True, 'ä\n"\\']})

    def test_the_end_of_a_stream_inside_a_frame_is_seen(self):
        frame = Encoder("root", "g-1").frame({"kind": "shutdown"})
        for cut in range(len(frame) + 1):
            decoder = FrameDecoder()
            decoder.feed(frame[:cut])

            self.assertEqual(decoder.is_between_frames(), cut in (0, len(frame)))

    def test_any_partition_of_a_stream_gives_the_same_messages(self):
        generator = random.Random(1)
        encoder = Encoder("root", "g-1")
        for _ in range(200):
            sent = generator.choices(MESSAGES, k=6)
            stream = b"".join(map(encoder.frame, sent))
            decoder, received = FrameDecoder(), []
            while stream:
                size = generator.choice((1, 2, 3, 5, 50, 500))
                received += map(read, decoder.feed(stream[:size]))
                stream = stream[size:]

            self.assertEqual(received, sent)

    def test_any_damage_is_an_error_or_leaves_the_messages_valid(self):
        generator = random.Random(2)
        encoder = Encoder("root", "g-1")
        errors = 0
        for _ in range(4_000):
            stream = bytearray(b"".join(map(encoder.frame, generator.choices(MESSAGES, k=3))))
            for _ in range(generator.randrange(1, 4)):
                place = generator.randrange(len(stream))
                action = generator.randrange(3)
                if action == 0:
                    stream[place] ^= 1 << generator.randrange(8)
                elif action == 1:
                    del stream[place : place + generator.randrange(1, 9)]
                else:
                    stream[place:place] = generator.randbytes(generator.randrange(1, 9))
                if not stream:
                    break
            try:
                for data in FrameDecoder().feed(bytes(stream)):
                    self.assertIsNone(vocabulary.fault_of_message(read(data)))
            except ProtocolError:
                errors += 1
        self.assertGreater(errors, 2_000)

    def test_random_json_agrees_with_the_standard_parser(self):
        generator = random.Random(3)
        for _ in range(2_000):
            text = json.dumps({"v": random_value(generator, 4)}, ensure_ascii=generator.random() < 0.5)

            self.assertEqual(parse_object(text.encode()), json.loads(text))
            self.assertEqual(json.loads(dump(json.loads(text))), json.loads(text))

    def test_a_length_alone_allocates_nothing(self):
        decoder = FrameDecoder()
        tracemalloc.start()
        decoder.feed(FRAME_BYTES_MAX.to_bytes(4, "big") + b"{")
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()

        self.assertLess(peak, 65_536)


def random_value(generator, depth):
    kind = generator.randrange(8 if depth else 6)
    if kind == 0:
        return generator.choice((None, True, False))
    if kind == 1:
        return generator.randrange(-(2**63), 2**63)
    if kind == 2:
        return generator.uniform(-1e300, 1e300)
    if kind in (3, 4, 5):
        return "".join(generator.choices('a"\\\n\0é🙂/\x7f ', k=generator.randrange(6)))
    if kind == 6:
        return [random_value(generator, depth - 1) for _ in range(generator.randrange(4))]
    return {
        str(generator.random()): random_value(generator, depth - 1) for _ in range(generator.randrange(4))
    }


class SharedEnvelopes(unittest.TestCase):
    """The file that both decoders run."""

    @classmethod
    def setUpClass(cls):
        cls.cases = json.loads((FIXTURES / "envelopes.json").read_text())

    def test_accepted(self):
        for case in self.cases["accepted"]:
            with self.subTest(case["name"]):
                read(case["text"].encode())

    def test_refused(self):
        for case in self.cases["refused"]:
            data = bytes.fromhex(case["hex"]) if "hex" in case else case["text"].encode()
            with self.subTest(case["name"], why=case.get("why")), self.assertRaises(ProtocolError):
                read(data)

    def test_the_file_is_not_empty(self):
        self.assertGreater(len(self.cases["accepted"]), 0)
        self.assertGreater(len(self.cases["refused"]), 0)


if __name__ == "__main__":
    unittest.main()
