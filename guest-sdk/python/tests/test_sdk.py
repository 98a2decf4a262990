"""Definitions of items, their checks, and calls with a mock host."""

import enum
import unittest
import unittest.mock
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NotRequired, Optional, TypedDict

from hatchery_guest import (
    AgentContext, ArtifactVersion, Blob, CallbackContext, CodeExecutionResult, CodeInput, CodeOutput, Content, Context, DynamicTool, Error, Event,
    EventActions, EventWindow, Example, FatalError, FunctionCall, FunctionResponse, LiveConnection, LiveMessage, LiveRunRequest, LiveSignal,
    LlmAgent, LlmRequest, LlmResponse, Part, PluginInfo, RemainingLimits, RunInfo, RunRequest, ToolCall, ToolConfirmation, ToolContext,
    ToolError, agent, callback, code_executor, examples, live_model, model, plugin, summarizer, tool, toolset,
)  # fmt: skip
from hatchery_guest.export import Exports
from hatchery_guest.schema import BadHint, BadValue, dump, parse, schema_of
from hatchery_guest.testing import MockHost, run


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

    Rounds only if `digits` is set.

    Args:
        length: The length,
            with its unit.
        to (Unit): The unit of the result.
        digits: The number of digits to keep.

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

    def test_a_hint_without_a_schema_is_named(self) -> None:
        with self.assertRaisesRegex(BadHint, "bytes has no JSON Schema"):
            schema_of(bytes)

    def test_values_are_converted_to_the_types_of_their_hints(self) -> None:
        self.assertEqual(parse(Length, {"value": 2, "unit": "ft"}, "x"), Length(2.0, Unit.FOOT))
        self.assertEqual(parse(int, 6.0, "x"), 6)
        self.assertEqual(parse(Optional[list[int]], [1], "x"), [1])
        self.assertEqual(parse(tuple[int, str], [1, "a"], "x"), (1, "a"))
        self.assertEqual([parse(Literal["a", None], value, "x") for value in ("a", None)], ["a", None])

    def test_an_invalid_value_is_named_by_its_path(self) -> None:
        for hint, value, message in [
            (int, "6", "x must be an integer"),
            (int, True, "x must be an integer"),
            (Unit, "mile", "x must be one of 'm', 'ft'"),
            (Length, {"unit": "m"}, "x has no `value`"),
            (list[int], [1, "a"], r"x\[1\] must be an integer"),
            (Length, {"value": "a"}, "x.value must be a number"),
        ]:
            with self.subTest(message=message), self.assertRaisesRegex(BadValue, message):
                parse(hint, value, "x")

    def test_results_are_converted_to_json(self) -> None:
        self.assertEqual(dump([Length(1.0), (Unit.FOOT, None)]), [{"value": 1.0, "unit": "m"}, ["ft", None]])
        with self.assertRaisesRegex(BadValue, "a value of type bytes cannot be converted to JSON"):
            dump(b"x")


class Tools(unittest.TestCase):
    def test_a_tool_is_described_by_its_docstring_and_hints(self) -> None:
        declaration = convert.declaration
        self.assertEqual(declaration.name, "convert")
        self.assertEqual(declaration.description, "Converts a length.\n\nRounds only if `digits` is set.")
        parameters = declaration.parameters
        self.assertEqual(parameters["required"], ["length", "to"])
        self.assertEqual(list(parameters["properties"]), ["length", "to", "digits", "mode"])
        self.assertEqual(parameters["properties"]["length"]["description"], "The length, with its unit.")
        self.assertEqual(parameters["properties"]["to"]["description"], "The unit of the result.")
        self.assertEqual(parameters["properties"]["digits"], {"type": "integer", "description": "The number of digits to keep."})
        self.assertEqual(parameters["properties"]["mode"]["default"], "up")

    def test_a_tool_is_called_with_json(self) -> None:
        host = MockHost()
        result = run(convert.call({"length": {"value": 1}, "to": "ft", "digits": None}, host.tool_context()))
        self.assertEqual(result, {"to": "ft", "from": {"value": 1.0, "unit": "m"}, "digits": None})
        self.assertEqual(host.state, {"last": {"value": 1.0, "unit": "m"}})

    def test_invalid_arguments_are_reported(self) -> None:
        for args, message in [
            ({}, "argument `length` is missing"),
            ({"length": {"value": 1}, "to": "x"}, "argument `to` must be one of 'm', 'ft'"),
            ({"size": 1}, "`convert` has no argument `size`; it has length, to, digits, mode"),
        ]:
            with self.subTest(args=args), self.assertRaisesRegex(BadValue, message):
                run(convert.call(args, MockHost().tool_context()))

    def test_a_result_that_is_no_json_is_a_mistake_in_the_tool(self) -> None:
        @tool
        async def later() -> int:
            return 1

        @tool
        async def early() -> Any:
            return later()

        @tool
        def raw() -> Any:
            return b"1"

        for wrong, message in [
            (early, "the result of `early`: the coroutine of `later` cannot be converted to JSON; write `await` before the call"),
            (raw, "the result of `raw`: a value of type bytes cannot be converted to JSON; return strings, numbers"),
        ]:
            with self.subTest(tool=wrong.name), self.assertRaisesRegex(TypeError, message):
                run(wrong.call({}, MockHost().tool_context()))

    def test_a_context_without_a_type_hint_is_named(self) -> None:
        def count(text: str, cx) -> int: ...  # type: ignore[no-untyped-def]
        def describe(context: Any, cx: str) -> str: ...

        with self.assertRaisesRegex(TypeError, "parameter `cx` of `count` has no type hint; write `cx: ToolContext` if it is the context"):
            tool(count)
        self.assertEqual(tool(describe).declaration.parameters["required"], ["context", "cx"])

    def test_a_tool_can_be_called_as_a_function(self) -> None:
        @tool(name="twice", confirm=True)
        def double(number: int) -> int:
            """Doubles."""
            return 2 * number

        self.assertEqual(double(4), 8)
        self.assertEqual((double.name, double.confirm), ("twice", True))
        self.assertEqual(run(double.call({"number": 4}, MockHost().tool_context())), 8)


class Agents(unittest.TestCase):
    def test_a_custom_agent_yields_texts_and_events(self) -> None:
        @agent(model="any")
        async def poet(cx: AgentContext):
            """Writes."""
            yield "one"
            yield Event.from_text((await cx.generate("More?")).text)
            cx.state["done"] = True

        host = MockHost(responses=["two"])
        events = run(poet.events(host.agent_context()))
        self.assertEqual([event.text for event in events], ["one", "two"])
        self.assertEqual((poet.name, poet.description, poet.model), ("poet", "Writes.", "any"))
        self.assertEqual(host.requests[0].contents[0].text, "More?")
        self.assertTrue(host.state["done"])

    def test_parameters_without_a_value_are_reported_at_once(self) -> None:
        with self.assertRaisesRegex(TypeError, "agent `lost`: no value for parameter `cx`; annotate it with Context"):

            @agent
            async def lost(cx):
                yield ""

        with self.assertRaisesRegex(TypeError, "callback `check`: no value for parameter `more`"):

            @callback("before_tool")
            def check(call: ToolCall, more: int) -> None: ...

        with self.assertRaisesRegex(ValueError, "unknown hook `before_tools`; use one of before_agent"):
            callback("before_tools")  # type: ignore[arg-type]

    def test_a_callback_can_omit_arguments(self) -> None:
        @callback("after_tool")
        def note(call: ToolCall, cx: CallbackContext) -> None:
            cx.state["noted"] = call.tool

        host = MockHost()
        run(note.call(host.callback_context(), ToolCall("x"), {"result": 1}))
        self.assertEqual(host.state, {"noted": "x"})


class Providers(unittest.TestCase):
    def test_a_model_streams_and_its_pieces_are_joined(self) -> None:
        @model
        async def parrot(request: LlmRequest, cx: Context):
            for word in request.contents[-1].text.split():
                yield word + " "
            yield LlmResponse(finish_reason="STOP")

        request = LlmRequest.from_prompt("one two")
        pieces = run(parrot.responses(request, MockHost().context()))
        self.assertEqual([piece.text for piece in pieces], ["one ", "two ", ""])
        answer = run(parrot.answer(request, MockHost().context()))
        self.assertEqual((answer.text, answer.finish_reason, len(answer.content.parts)), ("one two ", "STOP", 1))

        @model(name="short")
        def brief(request: LlmRequest) -> str:
            return "no"

        self.assertEqual((brief.name, run(brief.answer(request, MockHost().context())).text), ("short", "no"))

    def test_code_is_run_events_are_summarized_and_examples_selected(self) -> None:
        @code_executor
        def adder(input: CodeInput) -> str:
            return str(sum(int(line) for line in input.code.splitlines()))

        @summarizer
        async def minutes(events: list, cx: Context) -> str:
            return (await cx.generate(" ".join(event.text for event in events))).text

        @examples
        def sums(query: str) -> list:
            return [Example("1 + 1", "2")] if "+" in query else []

        host = MockHost(responses=["short"])
        self.assertEqual(run(adder.execute(CodeInput("1\n2"), host.context())), CodeOutput("3"))
        summary = run(minutes.summarize([Event.from_text("a"), Event.from_text("b")], host.context()))
        self.assertEqual((summary.text, host.requests[0].contents[0].text), ("short", "a b"))
        self.assertEqual(run(sums.examples("2 + 2", host.context()))[0].output, [Content.model("2")])

    def test_a_plugin_has_the_hooks_of_its_class(self) -> None:
        @plugin
        class GoodManners:
            async def before_model(self, request: LlmRequest) -> None:
                request.system_instructions.append("Be polite.")

            def close(self, cx: CallbackContext) -> None:
                cx.log.info("closed")

            def _helper(self) -> None: ...

        self.assertEqual((GoodManners.name, sorted(GoodManners.hooks)), ("good_manners", ["before_model", "close"]))
        host, request = MockHost(), LlmRequest()
        run(GoodManners.call("before_model", host.callback_context(), request))
        run(GoodManners.call("close", host.callback_context()))
        self.assertEqual((request.system_instructions, host.log_lines[0][1]), (["Be polite."], "closed"))
        with self.assertRaisesRegex(TypeError, "unknown hook `before_models`; use one of on_user_message"):

            @plugin
            class Wrong:
                def before_models(self) -> None: ...

    def test_a_toolset_computes_its_tools(self) -> None:
        @toolset
        def admin(cx: Context) -> list:
            ban = DynamicTool("ban", "Bans a user.", lambda args, cx: args["user"])
            return [ban, convert] if cx.state.get("admin") else []

        host = MockHost()
        self.assertEqual(run(admin.tools(host.read_only_context())), [])
        with self.assertRaisesRegex(ToolError, "toolset `admin` has no tool `ban` now"):
            run(admin.call("ban", {"user": "eve"}, host.tool_context()))
        host.state["admin"] = True
        self.assertEqual([tool.name for tool in run(admin.tools(host.read_only_context()))], ["ban", "convert"])
        self.assertEqual(run(admin.call("ban", {"user": "eve"}, host.tool_context())), "eve")


class Services(unittest.TestCase):
    def test_code_runs_an_app_and_reads_its_answer(self) -> None:
        host = MockHost(apps={"clerk": lambda request: ["One moment.", f"You said {request.message.text}."]})
        cx = host.tool_context()

        async def work() -> str:
            run = await cx.runner.run(RunRequest("clerk", "hi", session="desk", state_delta={"urgent": True}))
            run.cancel()
            return await run.text()

        self.assertEqual(run(work()), "You said hi.")
        self.assertEqual((host.run_requests[0].session, host.run_requests[0].state_delta), ("desk", {"urgent": True}))
        self.assertEqual((host.cancelled_runs, cx.runner.list_apps()), (["e-run-1"], ["clerk"]))

    def test_a_run_that_fails_raises_its_error(self) -> None:
        cx = MockHost(apps={"clerk": lambda request: [Event(error_code="BROKEN", error_message="it broke")]}).tool_context()

        async def work(app: str) -> str:
            return await (await cx.runner.run(RunRequest(app, "hi"))).text()

        for app, code in [("clerk", "BROKEN"), ("nobody", "NOT_FOUND")]:
            with self.assertRaises(Error) as caught:
                run(work(app))
            self.assertEqual(caught.exception.code, code)

    def test_code_talks_to_an_app_in_a_live_run(self) -> None:
        host = MockHost(apps={"clerk": lambda request: [f"You said {request.message.text}."]})
        cx = host.tool_context()

        async def work() -> list[list[str]]:
            live = await cx.runner.run_live(LiveRunRequest("clerk", session="desk"))
            turns = []
            for message in ["one", Content.user("two")]:
                await live.send(message)
                turns.append([event.text for event in await live.turn()])
            live.close()
            with self.assertRaises(Error) as caught:
                await live.send("three")
            self.assertEqual((live.session, caught.exception.code), ("desk", "LIVE_CLOSED"))
            return turns

        self.assertEqual(run(work()), [["You said one.", ""], ["You said two.", ""]])
        self.assertEqual([request.session for request in host.run_requests], ["desk", "desk"])

    def test_a_live_run_that_fails_raises_its_error(self) -> None:
        cx = MockHost(apps={"clerk": lambda request: []}).tool_context()

        async def work(app: str) -> None:
            live = await cx.runner.run_live(LiveRunRequest(app))
            await live.send(Blob("audio/pcm", b"1"))
            await live.turn()

        for app, code in [("clerk", "BAD_INPUT"), ("nobody", "NOT_FOUND")]:
            with self.assertRaises(Error) as caught:
                run(work(app))
            self.assertEqual(caught.exception.code, code)

    def test_a_live_model_yields_what_it_says(self) -> None:
        @live_model
        async def parrot(request: LlmRequest, connection: LiveConnection):
            yield f"Good {connection.config['time']}."
            async for heard in connection:
                match heard:
                    case LiveMessage(message):
                        yield message.text
                    case LiveSignal.ACTIVITY_START:
                        yield LiveSignal.INTERRUPTED
                yield LiveSignal.TURN_COMPLETE

        async def requests():
            yield LiveMessage(Content.user("hi"))
            yield LiveSignal.ACTIVITY_START

        async def work() -> list[Any]:
            connection = LiveConnection(requests(), {"time": "morning"})
            return [response async for response in parrot.responses(LlmRequest([]), connection, MockHost().tool_context())]

        greeting, echo = Content.model("Good morning."), Content.model("hi")
        self.assertEqual(run(work()), [greeting, echo, LiveSignal.TURN_COMPLETE, LiveSignal.INTERRUPTED, LiveSignal.TURN_COMPLETE])
        with self.assertRaisesRegex(TypeError, "live model `mute` is not an async generator: write `async def` and `yield`"):

            @live_model
            def mute(request: LlmRequest) -> None: ...

    def test_other_sessions_are_created_read_and_deleted(self) -> None:
        host = MockHost(sessions={("diary", "old"): ["one", "two"]})
        diary = host.tool_context().sessions("diary")

        async def work() -> None:
            created = await diary.create("today", {"mood": "good"})
            self.assertEqual((created.id, created.state), ("today", {"mood": "good"}))
            self.assertEqual((await diary.append("today", "Dear diary.")).author, "agent")
            self.assertEqual([event.text for event in await diary.events("old", EventWindow(recent=1))], ["two"])
            self.assertEqual([session.id for session in await diary.list()], ["today", "old"])
            await diary.delete("old")
            self.assertIsNone(await diary.get("old"))
            with self.assertRaisesRegex(Error, "its agents emit events instead"):
                await host.tool_context().sessions("app").append("session", "x")

        run(work())
        self.assertEqual([event.text for event in host.sessions["diary", "today"]], ["Dear diary."])

    def test_what_is_added_to_the_memory_is_found_once(self) -> None:
        host = MockHost(user_message="I like bread", sessions={("app", "old"): ["bread and butter"]})
        memory = host.tool_context().memory

        async def work() -> int:
            await memory.add_session()
            await memory.add_session("old")
            await memory.add_events(["a note about bread", "a note about bread"])
            return len(await memory.search("bread"))

        self.assertEqual(run(work()), 3)

    def test_a_test_sets_up_the_run_its_plugins_arguments_and_embeddings(self) -> None:
        info = RunInfo("app", "user", "session", "e-1", "agent", streaming_mode="sse", remaining=RemainingLimits(model_calls=3))
        host = MockHost(
            info=info, plugins=[PluginInfo("audit", ["on_event"])], arguments={"limit": 1}, models=["local:*"], embed=lambda text: [len(text)]
        )
        cx = host.tool_context()
        self.assertEqual((cx.info.streaming_mode, cx.info.remaining.model_calls), ("sse", 3))
        self.assertEqual((cx.arguments, cx.models(), len(cx.plugins())), ({"limit": 1}, ["local:*"], 1))
        self.assertEqual((cx.plugin("audit").hooks, cx.plugin("none")), (["on_event"], None))
        self.assertEqual(run(cx.embed("local:x", ["a", "bc"])), [[1], [2]])
        cx.end_invocation()
        self.assertTrue(host.has_ended_invocation)

    def test_an_instruction_only_reads(self) -> None:
        cx = MockHost(state={"a": 1}).read_only_context()
        self.assertEqual(cx.state["a"], 1)
        with self.assertRaises(Error) as caught:
            cx.state["a"] = 2
        self.assertEqual(caught.exception.code, "READ_ONLY")


class ExportLists(unittest.TestCase):
    def test_exports_are_sorted_by_kind_and_include_sub_agents(self) -> None:
        exports = Exports()
        child = LlmAgent(name="child")
        exports.add(LlmAgent(name="parent", sub_agents=[child, "other/agent"], tools=[convert]))
        exports.add(convert)
        self.assertEqual((list(exports.agents), list(exports.tools)), (["parent", "child"], ["convert"]))
        self.assertEqual(exports.kinds(), ["agents", "tools"])

    def test_an_invalid_export_is_named(self) -> None:
        with self.assertRaisesRegex(TypeError, "export agents, and functions and classes marked with @tool"):
            Exports().add(print)  # type: ignore[arg-type]
        with self.assertRaisesRegex(TypeError, "agent `x`: 5 has no name; use an item of this component, or a name"):
            Exports().add(LlmAgent(name="x", tools=[convert, "b", 5]))  # type: ignore[list-item]
        exports = Exports()
        exports.add(LlmAgent(name="one"))
        with self.assertRaisesRegex(ValueError, "two agents are named `one`"):
            exports.add(LlmAgent(name="one"))


    def test_an_item_of_an_agent_that_is_not_exported_is_named(self) -> None:
        exports = Exports()
        exports.add(LlmAgent(name="parent", sub_agents=[LlmAgent(name="child", tools=[convert, "other/tool"])]))
        with self.assertRaisesRegex(TypeError, r"agent `child` uses `convert`, which is not exported; add it to `export\(…\)`"):
            exports.check_references()
        exports.add(convert)
        exports.check_references()


class Contexts(unittest.TestCase):
    def test_state_is_a_dict(self) -> None:
        host = MockHost(state={"a": 1})
        cx = Context(host)
        self.assertEqual((cx.state["a"], cx.state.get("b", 2), "b" in cx.state, len(cx.state)), (1, 2, False, 1))
        del cx.state["a"]
        with self.assertRaises(KeyError):
            cx.state["a"]
        self.assertEqual(host.state, {})

    def test_clearing_the_state_reads_it_once(self) -> None:
        host = MockHost(state={"a": 1, "user:b": 2, "temp:c": 3})
        state = Context(host).state
        with unittest.mock.patch.object(host, "all_state", wraps=host.all_state) as reads:
            state.clear()
        self.assertEqual((host.state, reads.call_count), ({}, 1))

    def test_artifacts_settings_and_log(self) -> None:
        host = MockHost(config={"limit": 3})
        cx = Context(host)

        async def work() -> None:
            self.assertEqual(await cx.artifacts.save("a.txt", "one"), 0)
            self.assertEqual(await cx.artifacts.save("a.txt", b"two", "text/plain"), 1)
            part = await cx.artifacts.load("a.txt", 0)
            assert part is not None
            self.assertEqual(part.text, "one")
            self.assertEqual(await cx.artifacts.versions("a.txt"), [0, 1])
            self.assertEqual(await cx.artifacts.save("a.txt", b"three", "text/plain", {"author": "ada"}), 2)
            newest = await cx.artifacts.version("a.txt")
            self.assertEqual(newest, ArtifactVersion(2, "text/plain", 5, 2_000_000, {"author": "ada"}))
            first = await cx.artifacts.version("a.txt", 0)
            assert first is not None
            self.assertEqual((first.version, first.mime_type, first.size, first.custom_metadata), (0, None, 3, {}))
            self.assertIsNone(await cx.artifacts.version("a.txt", 3))
            self.assertEqual(host.artifact_metadata["a.txt"], [{}, {}, {"author": "ada"}])

        run(work())
        self.assertEqual((cx.config("limit"), cx.config("none", 5)), (3, 5))
        cx.log.info("hello", number=1)
        self.assertEqual(host.log_lines, [("info", "hello", {"number": "1"})])

    def test_a_stream_ends_with_the_complete_response(self) -> None:
        cx = MockHost(responses=["one two", FatalError("no")]).agent_context()
        responses = run(cx.stream("Say it."))
        self.assertEqual([(response.text, response.partial) for response in responses], [("one ", True), ("two ", True), ("one two", False)])
        with self.assertRaises(FatalError):
            run(cx.generate("Again."))

    def test_the_progress_of_a_tool_is_recorded(self) -> None:
        @tool
        async def bake(loaves: int, cx: ToolContext) -> None:
            for loaf in range(loaves):
                await cx.report_progress(loaf + 1, total=loaves, message=f"loaf {loaf + 1}")
            await cx.report_progress(0.5)

        host = MockHost()
        run(bake.call({"loaves": 2}, host.tool_context()))
        self.assertEqual(host.progress, [(1, 2, "loaf 1"), (2, 2, "loaf 2"), (0.5, None, None)])
        for progress, total in [(float("nan"), None), (1, float("inf"))]:
            with self.assertRaises(Error) as raised:
                run(host.tool_context().report_progress(progress, total))
            self.assertEqual(raised.exception.code, "BAD_INPUT")

    def test_the_metadata_of_a_run_is_readable_and_empty_by_default(self) -> None:
        self.assertEqual(MockHost(run_metadata={"tenant": "acme"}).context().run_metadata, {"tenant": "acme"})
        self.assertEqual(MockHost().tool_context().run_metadata, {})

    def test_a_user_is_asked_for_a_credential_and_again_after_it_is_refused(self) -> None:
        config = {"authScheme": {"type": "apiKey", "in": "header", "name": "X-Key"}}
        host = MockHost()
        self.assertIsNone(run(host.tool_context().credential(config)))
        self.assertEqual(host.requested_credential, config)
        host = MockHost(credential={"authType": "apiKey", "apiKey": "k"})
        cx = host.tool_context()
        credential = run(cx.credential(config))
        self.assertEqual((credential, host.requested_credential), ({"authType": "apiKey", "apiKey": "k"}, None))
        run(cx.refuse_credential(config, credential))
        self.assertIsNone(run(cx.credential(config)))

    def test_a_tool_controls_the_run_and_calls_other_tools_and_agents(self) -> None:
        host = MockHost(tools={"double": lambda number: 2 * number}, sub_agents={"helper": [Event.from_text("done")]})
        cx = host.tool_context()
        cx.transfer_to("helper")
        cx.escalate()
        cx.skip_summarization()
        cx.request_confirmation("Sure?", {"days": 2})
        self.assertEqual((host.transferred_to, host.has_escalated, host.has_skipped_summarization), ("helper", True, True))
        self.assertEqual(host.requested_confirmation, ToolConfirmation("Sure?", False, {"days": 2}))
        self.assertEqual((cx.idempotency_key, MockHost(idempotency_key=None).tool_context().idempotency_key), ("key-of-call", None))
        self.assertEqual(run(cx.call_tool("double", number=2)), 4)
        self.assertEqual([event.text for event in run(host.agent_context().sub_agent("helper"))], ["done"])
        with self.assertRaisesRegex(ToolError, "tool `triple` not found"):
            run(cx.call_tool("triple"))


class Events(unittest.TestCase):
    CALL = FunctionCall("look")
    RESPONSE = FunctionResponse("look", {"result": 1})

    @staticmethod
    def event(data: Any, **fields: Any) -> Event:
        return Event(Content("model", [Part("so"), Part(data)]), **fields)

    def test_the_calls_and_responses_of_an_event_are_those_of_its_message(self) -> None:
        event = Event(Content("model", [Part("so"), Part(self.CALL), Part(self.RESPONSE)]))
        self.assertEqual((event.function_calls, event.function_responses), ([self.CALL], [self.RESPONSE]))
        self.assertEqual((Event().function_calls, Event().function_responses), ([], []))

    def test_an_event_is_a_final_response_if_the_agent_has_nothing_more_to_do(self) -> None:
        result = self.event(CodeExecutionResult(output="4"))
        self.assertEqual((result.has_trailing_code_execution_result, self.event("4").has_trailing_code_execution_result), (True, False))
        for open_event in [self.event(self.CALL), self.event(self.RESPONSE), result, self.event("ye", partial=True)]:
            self.assertIs(open_event.is_final_response, False)
        for final in [
            self.event("yes"), Event(), self.event(self.RESPONSE, actions=EventActions(skip_summarization=True)),
            self.event(self.CALL, long_running_tool_ids=["1"]),
        ]:  # fmt: skip
            self.assertIs(final.is_final_response, True)


if __name__ == "__main__":
    unittest.main()
