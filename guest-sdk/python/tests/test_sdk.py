"""What authors write, and what becomes of it."""

import enum
import unittest
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NotRequired, Optional, TypedDict

from hatchery_guest import AgentContext, CallbackContext, Context, Event, FatalError, LlmAgent, ToolCall, ToolContext
from hatchery_guest import agent, callback, tool
from hatchery_guest.offer import Offer
from hatchery_guest.schema import BadHint, BadValue, dump, read, schema_of
from hatchery_guest.testing import FakeHost, run


class Unit(enum.Enum):
    METRE = "m"
    FOOT = "ft"


@dataclass
class Length:
    value: float
    unit: Unit = Unit.METRE


class Place(TypedDict):
    name: str
    tags: NotRequired[list[str]]


@tool
async def convert(length: Length, to: Unit, cx: ToolContext, digits: Optional[int] = None, mode: Literal["up", "down"] = "up") -> dict:
    """Converts a length.

    Rounds only when asked to.

    Args:
        length: What to convert,
            with its unit.
        to (Unit): The unit that is wanted.
        digits: How many digits to keep.

    Returns:
        The new length.
    """
    cx.state["last"] = length
    return {"to": to, "from": length, "digits": digits}


class Schemas(unittest.TestCase):
    def test_hints_become_json_schema(self) -> None:
        for hint, schema in [
            (str, {"type": "string"}),
            (bool, {"type": "boolean"}),
            (list[int], {"type": "array", "items": {"type": "integer"}}),
            (dict[str, float], {"type": "object", "additionalProperties": {"type": "number"}}),
            (Literal["a", "b"], {"type": "string", "enum": ["a", "b"]}),
            (Unit, {"type": "string", "enum": ["m", "ft"]}),
            (int | None, {"anyOf": [{"type": "integer"}, {"type": "null"}]}),
            (Annotated[str, "A name."], {"type": "string", "description": "A name."}),
            (set[str], {"type": "array", "items": {"type": "string"}, "uniqueItems": True}),
            (Any, {}),
            (
                Place,
                {
                    "type": "object",
                    "properties": {"name": {"type": "string"}, "tags": {"type": "array", "items": {"type": "string"}}},
                    "required": ["name"],
                },
            ),
        ]:
            with self.subTest(hint=hint):
                self.assertEqual(schema_of(hint), schema)

    def test_a_hint_that_json_has_nothing_for_is_named(self) -> None:
        with self.assertRaisesRegex(BadHint, "bytes has no JSON Schema"):
            schema_of(bytes)

    def test_values_are_made_by_their_hints(self) -> None:
        self.assertEqual(read(Length, {"value": 2, "unit": "ft"}, "x"), Length(2.0, Unit.FOOT))
        self.assertEqual(read(int, 6.0, "x"), 6)
        self.assertEqual(read(Optional[list[int]], [1], "x"), [1])
        self.assertEqual(read(tuple[int, str], [1, "a"], "x"), (1, "a"))

    def test_values_that_do_not_fit_are_told_by_their_place(self) -> None:
        for hint, value, message in [
            (int, "6", "x must be a whole number"),
            (int, True, "x must be a whole number"),
            (Unit, "mile", "x must be one of 'm', 'ft'"),
            (Length, {"unit": "m"}, "x lacks value"),
            (list[int], [1, "a"], r"x\[1\] must be a whole number"),
            (Length, {"value": "a"}, "x.value must be a number"),
        ]:
            with self.subTest(message=message), self.assertRaisesRegex(BadValue, message):
                read(hint, value, "x")

    def test_results_become_json(self) -> None:
        self.assertEqual(dump([Length(1.0), (Unit.FOOT, None)]), [{"value": 1.0, "unit": "m"}, ["ft", None]])
        with self.assertRaisesRegex(BadValue, "a bytes is not JSON"):
            dump(b"x")


class Tools(unittest.TestCase):
    def test_a_tool_is_described_by_its_docstring_and_hints(self) -> None:
        declaration = convert.declaration
        self.assertEqual(declaration.name, "convert")
        self.assertEqual(declaration.description, "Converts a length.\n\nRounds only when asked to.")
        parameters = declaration.parameters
        self.assertEqual(parameters["required"], ["length", "to"])
        self.assertEqual(list(parameters["properties"]), ["length", "to", "digits", "mode"])
        self.assertEqual(parameters["properties"]["length"]["description"], "What to convert, with its unit.")
        self.assertEqual(parameters["properties"]["to"]["description"], "The unit that is wanted.")
        self.assertEqual(parameters["properties"]["digits"], {"type": "integer", "description": "How many digits to keep."})
        self.assertEqual(parameters["properties"]["mode"]["default"], "up")

    def test_a_tool_is_called_with_json(self) -> None:
        host = FakeHost()
        result = run(convert.call({"length": {"value": 1}, "to": "ft", "digits": None}, host.tool_context()))
        self.assertEqual(result, {"to": "ft", "from": {"value": 1.0, "unit": "m"}, "digits": None})
        self.assertEqual(host.state, {"last": {"value": 1.0, "unit": "m"}})

    def test_arguments_that_do_not_fit_are_told(self) -> None:
        for args, message in [
            ({}, "argument `length` is missing"),
            ({"length": {"value": 1}, "to": "x"}, "argument `to` must be one of 'm', 'ft'"),
            ({"size": 1}, "`convert` has no argument `size`; it has length, to, digits, mode"),
        ]:
            with self.subTest(args=args), self.assertRaisesRegex(BadValue, message):
                run(convert.call(args, FakeHost().tool_context()))

    def test_a_tool_is_still_a_function(self) -> None:
        @tool(name="twice", confirm=True)
        def double(number: int) -> int:
            """Doubles."""
            return 2 * number

        self.assertEqual(double(4), 8)
        self.assertEqual((double.name, double.confirm), ("twice", True))
        self.assertEqual(run(double.call({"number": 4}, FakeHost().tool_context())), 8)


class Agents(unittest.TestCase):
    def test_a_custom_agent_yields_texts_and_events(self) -> None:
        @agent(model="any")
        async def poet(cx: AgentContext):
            """Writes."""
            yield "one"
            yield Event.say((await cx.generate("More?")).text)
            cx.state["done"] = True

        host = FakeHost(answers=["two"])
        events = run(poet.events(host.agent_context()))
        self.assertEqual([event.text for event in events], ["one", "two"])
        self.assertEqual((poet.name, poet.description, poet.model), ("poet", "Writes.", "any"))
        self.assertEqual(host.requests[0].contents[0].text, "More?")
        self.assertTrue(host.state["done"])

    def test_what_agents_and_callbacks_cannot_be_given_is_said_at_once(self) -> None:
        with self.assertRaisesRegex(TypeError, "agent `lost` is given nothing for `cx`; annotate it with AgentContext"):

            @agent
            async def lost(cx):
                yield ""

        with self.assertRaisesRegex(TypeError, "callback `check` is given nothing for `more`"):

            @callback("before_tool")
            def check(call: ToolCall, more: int) -> None: ...

        with self.assertRaisesRegex(ValueError, "there is no `before_tools`; a callback is for one of before_agent"):
            callback("before_tools")  # type: ignore[arg-type]

    def test_a_callback_gets_what_it_takes(self) -> None:
        @callback("after_tool")
        def note(call: ToolCall, cx: CallbackContext) -> None:
            cx.state["noted"] = call.tool

        host = FakeHost()
        run(note.call(host.callback_context(), ToolCall("x"), {"result": 1}))
        self.assertEqual(host.state, {"noted": "x"})


class Offers(unittest.TestCase):
    def test_an_offer_is_sorted_by_kind_with_the_agents_below(self) -> None:
        offer = Offer()
        below = LlmAgent(name="below")
        offer.add(LlmAgent(name="above", sub_agents=[below, "other/agent"], tools=[convert]))
        offer.add(convert)
        self.assertEqual((list(offer.agents), list(offer.tools), offer.kinds()), (["above", "below"], ["convert"], ["agents", "tools"]))

    def test_what_cannot_be_offered_is_named(self) -> None:
        with self.assertRaisesRegex(TypeError, "export agents, and functions marked with @tool"):
            Offer().add(print)  # type: ignore[arg-type]
        offer = Offer()
        offer.add(LlmAgent(name="one"))
        with self.assertRaisesRegex(ValueError, "two agents are named `one`"):
            offer.add(LlmAgent(name="one"))


class Contexts(unittest.TestCase):
    def test_state_is_a_dict(self) -> None:
        host = FakeHost(state={"a": 1})
        cx = Context(host)
        self.assertEqual((cx.state["a"], cx.state.get("b", 2), "b" in cx.state, len(cx.state)), (1, 2, False, 1))
        del cx.state["a"]
        with self.assertRaises(KeyError):
            cx.state["a"]
        self.assertEqual(host.state, {})

    def test_artifacts_settings_and_log(self) -> None:
        host = FakeHost(config={"limit": 3})
        cx = Context(host)

        async def work() -> None:
            self.assertEqual(await cx.artifacts.save("a.txt", "one"), 0)
            self.assertEqual(await cx.artifacts.save("a.txt", b"two", "text/plain"), 1)
            part = await cx.artifacts.load("a.txt", 0)
            assert part is not None
            self.assertEqual(part.text, "one")
            self.assertEqual(await cx.artifacts.versions("a.txt"), [0, 1])

        run(work())
        self.assertEqual((cx.config("limit"), cx.config("none", 5)), (3, 5))
        cx.log.info("hello", number=1)
        self.assertEqual(host.lines, [("info", "hello", {"number": "1"})])

    def test_a_stream_ends_with_the_whole_answer(self) -> None:
        cx = FakeHost(answers=["one two", FatalError("X", "no")]).agent_context()
        pieces = run(cx.stream("Say it."))
        self.assertEqual([(piece.text, piece.partial) for piece in pieces], [("one ", True), ("two ", True), ("one two", False)])
        with self.assertRaises(FatalError):
            run(cx.generate("Again."))


if __name__ == "__main__":
    unittest.main()
