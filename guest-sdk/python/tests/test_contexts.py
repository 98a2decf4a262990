"""Arguments of a context's methods that come from elsewhere."""

import unittest

from hatchery_guest import tool
from hatchery_guest.testing import MockHost, run


@tool
def greet(name: str) -> str:
    return f"Hello, {name}!"


class Names(unittest.TestCase):
    def test_arguments_of_tools_have_any_name(self) -> None:
        host = MockHost(tools={"greet": greet, "echo": lambda **args: args})
        cx = host.agent_context()
        self.assertEqual(run(cx.call_tool("greet", name="Ada")), "Hello, Ada!")
        self.assertEqual(run(cx.call_tool("echo", name="Ada", self=1)), {"name": "Ada", "self": 1})

    def test_fields_of_log_lines_have_any_name(self) -> None:
        host = MockHost()
        cx = host.context()
        for level in ("error", "warn", "info", "debug"):
            getattr(cx.log, level)("sent", message="hello", self=1)
        fields = {"message": "hello", "self": "1"}
        self.assertEqual(host.log_lines, [(level, "sent", fields) for level in ("error", "warn", "info", "debug")])


if __name__ == "__main__":
    unittest.main()
