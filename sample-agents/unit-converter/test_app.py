"""Unit tests in plain Python, with a mock host."""

import unittest

from app import convert
from hatchery_guest.testing import MockHost, run


class Convert(unittest.TestCase):
    def test_values_are_converted_and_counted(self) -> None:
        host = MockHost()
        for value, unit, to, result in [(5, "km", "mi", "3.10686 mi"), (100, "C", "F", "212 F"), (1, "lb", "g", "453.592 g")]:
            self.assertEqual(run(convert.call({"value": value, "unit": unit, "to": to}, host.tool_context())), result)
        self.assertEqual(host.state, {"conversions": 3})

    def test_a_length_is_no_weight(self) -> None:
        with self.assertRaisesRegex(ValueError, "km and kg do not measure the same thing"):
            run(convert.call({"value": 1, "unit": "km", "to": "kg"}, MockHost().tool_context()))


if __name__ == "__main__":
    unittest.main()
