"""The hooks of callbacks tell the host what they have changed."""

import asyncio
import datetime
import sys
import unittest
from types import ModuleType, SimpleNamespace
from typing import Any

from hatchery_guest import (
    CodeInput, Content, Event, EventActions, LlmRequest, LlmResponse, Part, Plugin, ToolCall, callback, code_executor, examples, plugin,
    summarizer, toolset,
)  # fmt: skip
from hatchery_guest.export import EXPORTS
from hatchery_guest.testing import MockHost, run
from test_convert import CONVERT, contract_types, import_convert


def import_hooks() -> ModuleType:
    """Imports the hooks as in a component, without a host."""
    import_convert()
    sys.modules["wit_world.imports"].specs = contract_types("exports.wit")
    host, runtime = ModuleType("hatchery_guest.component.host"), ModuleType("componentize_py_types")
    host.ImportedHost = type("Host", (), {"log": lambda *_: None})
    runtime.Err = type("Err", (Exception,), {})
    sys.modules |= {"hatchery_guest.component.host": host, "componentize_py_types": runtime}
    from hatchery_guest.component import hooks

    return hooks


HOOKS = import_hooks()


@callback("before_tool")
def tidy(call: ToolCall) -> None:
    call.args = {"sides": 6, "fair": True}


@callback("before_tool")
def watch(call: ToolCall) -> None:
    call.args = dict(call.args)


@callback("before_model")
def settle(request: LlmRequest) -> None:
    request.config["temperature"] = 1


@callback("before_model")
def text(request: LlmRequest) -> str:
    return "hello"


@callback("before_agent")
def response() -> LlmResponse:
    return LlmResponse.from_text("hello")


@callback("before_tool")
def number(call: ToolCall) -> int:
    return 5


@callback("after_tool")
def date(call: ToolCall) -> object:
    return {"date": datetime.date(2026, 1, 1)}


@callback("before_agent")
def list_as_part() -> Content:
    return Content("model", [Part([1])])  # type: ignore[arg-type]


@plugin
class Audit:
    def on_event(self) -> str:
        return "seen"


@plugin
class Revision:
    def on_event(self, event: Event) -> None:
        event.long_running_tool_ids.append("2")
        event.actions.deleted_artifact_ids.clear()


class Results(unittest.TestCase):
    def tearDown(self) -> None:
        EXPORTS.__init__()

    def failure(self, item: Any, call: str, *values: Any) -> str:
        """Returns the error that the host gets."""
        EXPORTS.__init__()
        EXPORTS.add(item)
        hooks = HOOKS.Plugins() if isinstance(item, Plugin) else HOOKS.Callbacks()
        with self.assertRaises(HOOKS.Err) as caught:
            asyncio.run(getattr(hooks, call)(item.name, *values))
        self.assertEqual(caught.exception.args[0].code, "COMPONENT_FAILED")
        return caught.exception.args[0].message

    def test_a_result_of_another_type_is_an_error_that_names_the_hook(self) -> None:
        call = SimpleNamespace(tool="roll", args="{}")
        request, event = CONVERT.request_to_wit(LlmRequest()), CONVERT.event_to_wit(Event())
        for item, hook, values, message in [
            (text, "before_model", [request], "callback `text`: `before_model` returns an LlmResponse or None, not `str`"),
            (response, "before_agent", [], "callback `response`: `before_agent` returns a string, a Content or None, not `LlmResponse`"),
            (number, "before_tool", [call], "callback `number`: `before_tool` returns a dict or None, not `int`"),
            (date, "after_tool", [call, "{}"], "a value of type date cannot be converted to JSON; return strings, numbers, lists, dicts or dataclasses"),
            (Audit, "on_event", [event], "plugin `audit`: `on_event` returns an Event or None, not `str`"),
        ]:
            with self.subTest(hook=hook):
                self.assertEqual(self.failure(item, hook, *values), message)

    def test_a_result_that_cannot_be_converted_is_an_error(self) -> None:
        self.assertRegex(self.failure(list_as_part, "before_agent"), "the data of a part must be a str, .*, not a list")

    def test_a_text_in_the_place_of_a_content_or_a_part_is_an_error_that_says_what_to_write(self) -> None:
        for content, message in [
            (Content("model", ["hello"]), r"the parts of a Content are a list of Part objects, not of type str; write Part\(…\)"),  # type: ignore
            (Content("model", "hi"), "the parts of a Content are a list of Part objects, not of type str"),  # type: ignore
        ]:
            with self.subTest(message=message), self.assertRaisesRegex(TypeError, message):
                CONVERT.content_to_wit(content)
        with self.assertRaisesRegex(TypeError, r"a message is a Content, not a str; Content.model\(text\) and Content.user\(text\) create one"):
            CONVERT.event_to_wit(Event("hello"))  # type: ignore

    def test_a_result_of_another_type_is_an_error_that_names_the_item(self) -> None:
        cx = MockHost().context()
        for work, message in [
            (code_executor(lambda: None).execute(CodeInput("1"), cx), "code executor `<lambda>` returns a CodeOutput or a string, not `NoneType`"),
            (summarizer(lambda: 5).summarize([], cx), "summarizer `<lambda>` returns a string, a Content or None, not `int`"),
            (examples(lambda: None).examples("x", cx), "example provider `<lambda>` returns a list of Example, not `NoneType`"),
            (examples(lambda: [{"input": "a"}]).examples("x", cx), "returns a list of Example; it has {'input': 'a'}"),
            (toolset(lambda: "roll").tools(cx), "toolset `<lambda>` returns a list of Tool or DynamicTool, not `str`"),
            (toolset(lambda: [max]).tools(cx), "returns a list of Tool or DynamicTool; it has <built-in function max>"),
            (cx.generate(5), "a prompt is a string, a Content or an LlmRequest, not a int"),  # type: ignore[arg-type]
        ]:
            with self.subTest(message=message), self.assertRaisesRegex(TypeError, message):
                run(work)

    def test_unit_tests_get_the_error_of_the_host(self) -> None:
        with self.assertRaisesRegex(TypeError, "`before_model` returns an LlmResponse or None, not `str`"):
            run(text.call(MockHost().callback_context(), LlmRequest()))


@plugin
class HTTPLog:
    def close(self) -> None: ...


class Names(unittest.TestCase):
    def test_a_plugin_is_named_after_its_class(self) -> None:
        self.assertEqual((Audit.name, HTTPLog.name), ("audit", "http_log"))


class Changes(unittest.TestCase):
    def setUp(self) -> None:
        EXPORTS.__init__()
        for item in (tidy, watch, settle, Revision):
            EXPORTS.add(item)

    def tearDown(self) -> None:
        EXPORTS.__init__()

    def before_tool(self, name: str, args: str) -> Any:
        return asyncio.run(HOOKS.Callbacks().before_tool(name, SimpleNamespace(tool="roll", args=args)))

    def test_another_type_of_an_argument_is_a_change(self) -> None:
        action = self.before_tool("tidy", '{"sides": 6.0, "fair": 1}')
        self.assertEqual((type(action).__name__, action.value), ("ToolAction_Revise", '{"sides":6,"fair":true}'))

    def test_equal_arguments_are_no_change(self) -> None:
        for args in ('{"sides": 6.0, "fair": 1}', "{}"):
            self.assertEqual(type(self.before_tool("watch", args)).__name__, "ToolAction_Proceed")

    def test_changed_lists_of_an_event_are_changes(self) -> None:
        for event in (Event(long_running_tool_ids=["1"]), Event(actions=EventActions(deleted_artifact_ids=["a.txt"]))):
            ids = [*event.long_running_tool_ids, "2"]
            sent = asyncio.run(HOOKS.Plugins().on_event("revision", CONVERT.event_to_wit(event)))
            self.assertEqual((sent.long_running_tool_ids, sent.actions.deleted_artifact_ids), (ids, []))

    def test_another_type_of_a_setting_is_a_change(self) -> None:
        for temperature, expected in ((True, "ModelAction_Revise"), (1, "ModelAction_Proceed")):
            request = CONVERT.request_to_wit(LlmRequest([], config={"temperature": temperature}))
            action = asyncio.run(HOOKS.Callbacks().before_model("settle", request))
            self.assertEqual(type(action).__name__, expected)


if __name__ == "__main__":
    unittest.main()
