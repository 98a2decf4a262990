"""Services of a context."""

import unittest
import unittest.mock
from dataclasses import dataclass

from hatchery_guest import Blob, Event, EventActions, FatalError, Part, ToolError, tool
from hatchery_guest.testing import MockHost, run


@tool
def greet(name: str) -> str:
    return f"Hello, {name}!"


@tool
def price(product: str) -> float:
    if product == "bomb":
        raise FatalError("not for sale", "FORBIDDEN")
    raise LookupError("the shop is closed")


@dataclass
class Place:
    city: str
    at: tuple[int, int]


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


class StateOfSession(unittest.TestCase):
    def test_reading_all_of_the_state_asks_the_host_once(self) -> None:
        host = MockHost(state={"a": 1, "b": [2]})
        with unittest.mock.patch.object(host, "get_state", side_effect=AssertionError("asked for each key")):
            state = host.context().state
            self.assertEqual(list(state.items()), [("a", 1), ("b", [2])])
            self.assertEqual(list(state.values()), [1, [2]])
            self.assertEqual(state, {"a": 1, "b": [2]})


class Files(unittest.TestCase):
    def test_texts_bytes_and_parts_are_artifacts_and_other_values_are_errors(self) -> None:
        host = MockHost()
        artifacts = host.tool_context().artifacts
        for content in (b"ab", bytearray(b"ab"), memoryview(b"ab"), Blob("text/csv", b"ab"), Part(Blob("text/csv", b"ab"))):
            run(artifacts.save("a.csv", content, mime_type="text/csv"))
        run(artifacts.save("a.csv", "text"))
        self.assertEqual([part.data for part in host.artifacts["a.csv"]], [*[Blob("text/csv", b"ab")] * 5, "text"])
        with self.assertRaisesRegex(TypeError, "an artifact is a str, bytes, a Blob or a Part, not a dict; write other values as text"):
            run(artifacts.save("a.json", {"a": 1}))  # type: ignore[arg-type]


class MockTools(unittest.TestCase):
    def test_a_mock_tool_answers_as_a_host_does(self) -> None:
        host = MockHost(tools={"locate": lambda city: Place(city, (1, 2)), "pick": lambda: set, "price": price})
        self.assertEqual(run(host.tool_context().call_tool("locate", city="Rome")), {"city": "Rome", "at": [1, 2]})
        for name, args, message in [
            ("price", {"product": "lamp"}, "the shop is closed"),
            ("price", {}, "argument `product` is missing"),
            ("pick", {}, "the result of `pick`: a value of type type cannot be converted to JSON"),
        ]:
            with self.subTest(message=message), self.assertRaisesRegex(ToolError, message):
                run(host.tool_context().call_tool(name, **args))
        with self.assertRaisesRegex(FatalError, "not for sale") as caught:
            run(host.tool_context().call_tool("price", product="bomb"))
        self.assertEqual(caught.exception.code, "FORBIDDEN")


class OtherSessions(unittest.TestCase):
    def test_an_offset_or_a_limit_that_no_host_understands_is_an_error(self) -> None:
        host = MockHost(events=[Event.from_text("one")], sessions={("diary", "today"): ["one"]})
        cx = host.agent_context()
        diary = cx.sessions("diary")

        async def events(offset: int, limit: int) -> list[Event]:
            return cx.events(offset, limit)

        for read in (events, diary.list, lambda offset, limit: diary.events("today", offset=offset, limit=limit)):
            self.assertEqual(len(run(read(0, 2**32 - 1))), 1)
            with self.assertRaisesRegex(ValueError, "`offset` is a number from 0 on, not -9"):
                run(read(-9, 10))
            with self.assertRaisesRegex(ValueError, "`limit` is a number from 0 to 4294967295, not -1"):
                run(read(0, -1))

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
