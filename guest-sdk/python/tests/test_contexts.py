"""Services of a context."""

import unittest

from hatchery_guest import Event, EventActions, tool
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


class OtherSessions(unittest.TestCase):
    def test_null_in_the_state_changes_of_an_appended_event_deletes_the_key(self) -> None:
        diary = MockHost().agent_context().sessions("diary")

        async def work() -> dict:
            await diary.create("today", {"mood": "good", "page": 1})
            await diary.append("today", Event(actions=EventActions(state_delta={"mood": None, "page": 2})))
            session = await diary.get("today")
            assert session is not None
            return session.state

        self.assertEqual(run(work()), {"page": 2})


if __name__ == "__main__":
    unittest.main()
