"""The hooks of callbacks tell the host what they have changed."""

import asyncio
import sys
import unittest
from types import ModuleType, SimpleNamespace
from typing import Any

from hatchery_guest import LlmRequest, ToolCall, callback
from hatchery_guest.export import EXPORTS
from test_convert import CONVERT, contract_types, import_convert


def import_hooks() -> ModuleType:
    """Imports the hooks as in a component, without a host."""
    import_convert()
    sys.modules["wit_world.imports"].specs = contract_types("exports.wit")
    host, runtime = ModuleType("hatchery_guest.component.host"), ModuleType("componentize_py_types")
    host.ImportedHost = object
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


class Changes(unittest.TestCase):
    def setUp(self) -> None:
        EXPORTS.__init__()
        for item in (tidy, watch, settle):
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

    def test_another_type_of_a_setting_is_a_change(self) -> None:
        for temperature, expected in ((True, "ModelAction_Revise"), (1, "ModelAction_Proceed")):
            request = CONVERT.request_to_wit(LlmRequest([], config={"temperature": temperature}))
            action = asyncio.run(HOOKS.Callbacks().before_model("settle", request))
            self.assertEqual(type(action).__name__, expected)


if __name__ == "__main__":
    unittest.main()
