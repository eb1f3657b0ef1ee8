"""klbr-protocol(7) and the vocabulary say the same of every message, request and error code."""

from __future__ import annotations

import re
import unittest

from klbr import vocabulary
from tests.host import PACKAGES

PAGE = (PACKAGES.parent / "man" / "klbr-protocol.7").read_text("utf-8").replace("\\-", "-")


def rows(heading: str) -> list[list[str]]:
    """The rows of every table between this heading and the next one of its kind."""
    part = PAGE.partition(f"{heading}\n")[2]
    part = re.split(r"^\.S[HS] ", part, maxsplit=1, flags=re.MULTILINE)[0]
    found = []
    for table in re.findall(r"^\.TS\n(.*?)^\.TE", part, flags=re.MULTILINE | re.DOTALL):
        body = re.sub(r"T\{\n(.*?)\nT\}", r"\1", table.partition(".\n")[2])
        found += [line.split("|") for line in body.splitlines()]
    return found


def fields(text: str) -> set[str]:
    return set(text.split(", ")) if text else set()


class Manual(unittest.TestCase):
    def test_every_message_with_its_fields_and_no_other(self):
        documented = {row[0]: fields(row[2]) for row in rows(".SH MESSAGES") if row[0] != "kind"}

        self.assertEqual(documented, {kind: set(shape) for kind, shape in vocabulary.MESSAGES.items()})

    def test_every_request_with_its_fields_and_no_other(self):
        documented = {row[0]: fields(row[1]) for row in rows(".SH HOST REQUESTS") if row[0] != "method"}
        documented |= {row[0]: fields(row[1]) for row in rows(".SS Not in this version")}

        self.assertEqual(documented, {name: set(shape) for name, shape in vocabulary.REQUESTS.items()})

    def test_every_error_code_and_no_other(self):
        self.assertEqual([row[0] for row in rows(".SS Error codes")], list(vocabulary.ERROR_CODES))
