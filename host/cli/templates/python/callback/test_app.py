"""Unit tests of the callback."""

import unittest

from app import check
from hatchery_guest import ToolCall
from hatchery_guest.testing import MockHost, run


class Check(unittest.TestCase):
    def test_an_empty_text_is_refused(self) -> None:
        cx = MockHost().callback_context()
        self.assertEqual(run(check.call(cx, ToolCall("any", {"text": ""}))), {"error": "`text` must not be empty"})
        self.assertIsNone(run(check.call(cx, ToolCall("any", {"text": "words"}))))


if __name__ == "__main__":
    unittest.main()
