"""Unit tests of the tool."""

import unittest

from app import count_words
from hatchery_guest.testing import MockHost, run


class CountWords(unittest.TestCase):
    def test_words_are_counted(self) -> None:
        self.assertEqual(run(count_words.call({"text": "one two  three"}, MockHost().tool_context())), 3)


if __name__ == "__main__":
    unittest.main()
