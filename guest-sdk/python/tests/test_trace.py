"""Tracebacks for the host's log."""

import unittest

from hatchery_guest.trace import format_traceback


def fail_in(file: str, line: int) -> BaseException:
    """Returns an exception that was raised in a line of a file, called by a file of the SDK."""
    inner = compile("\n" * (line - 1) + "def fail():\n    raise ValueError('no flour')\n", file, "exec")
    outer = compile("def call(fail):\n    fail()\n", "/1/hatchery_guest/tool.py", "exec")
    names: dict = {}
    exec(inner, names)
    exec(outer, names)
    try:
        exec(compile("call(fail)", "/1/hatchery_guest/component/exports.py", "exec"), names)
    except ValueError as error:
        error.__traceback__ = error.__traceback__.tb_next
        return error
    raise AssertionError


class Tracebacks(unittest.TestCase):
    def test_the_frames_of_the_program_are_shown_with_its_own_paths(self) -> None:
        text = format_traceback(fail_in("/2/pantry/flour.py", 7))
        self.assertEqual(
            text.splitlines(),
            ["Traceback (most recent call last):", '  File "pantry/flour.py", line 8, in fail', "ValueError: no flour"],
        )


if __name__ == "__main__":
    unittest.main()
