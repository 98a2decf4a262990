"""Unit tests of the tool."""

import unittest

from app import count_words
from hatchery_guest.testing import MockHost, run


class CountWords(unittest.TestCase):
    def test_words_are_counted_and_the_count_is_stored(self) -> None:
        host = MockHost()
        self.assertEqual(run(count_words.call({"text": "one two  three"}, host.tool_context())), 3)
        self.assertEqual(host.state, {"last_count": 3})


if __name__ == "__main__":
    unittest.main()
