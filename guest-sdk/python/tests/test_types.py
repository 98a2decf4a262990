"""The types of the package, as type checkers see them."""

from __future__ import annotations

import importlib.util
import inspect
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from types import FunctionType

import hatchery_guest
from hatchery_guest import context, http, sessions

ROOT = Path(__file__).parents[1]
TEMPLATES = ROOT.parents[1] / "host/cli/templates/python"

USAGE = '''
from collections.abc import AsyncIterator
from typing import assert_type

from hatchery_guest import (
    AgentContext, CallbackContext, Event, Example, LlmAgent, LlmRequest, RunRequest, Tool, ToolCall, ToolContext, agent, callback, export,
    http, plugin, tool,
)
from hatchery_guest.http import Response
from hatchery_guest.testing import MockHost, run


@tool
async def roll(cx: ToolContext, sides: int = 6) -> int:
    return sides


@tool(confirm=True)
def greet(name: str) -> dict[str, str]:
    return {"text": name}


@callback("before_tool")
def check(call: ToolCall, cx: CallbackContext) -> dict[str, str] | None:
    return {"tool": call.tool}


@plugin
class Courtesy:
    def before_model(self, request: LlmRequest, cx: CallbackContext) -> None:
        request.system_instructions.append("Be polite.")


@agent(description="Reads.", tools=[roll, "other/tool"])
async def reader(cx: AgentContext) -> AsyncIterator[str | Event]:
    for event in await cx.sessions("diary").events("today"):
        yield event
    for version in await cx.artifacts.versions("a.txt"):
        yield str(version + 1)
    yield (await http.get("https://example.com/", params={"a": 1}, timeout=2)).text


clerk = LlmAgent(name="clerk", tools=[roll, greet], before_tool=[check], examples=[Example("Hi", "Hello")])
export(clerk, roll, greet, reader, check, Courtesy)

tools: list[Tool] = [roll, greet]
host = MockHost(apps={"clerk": lambda request: [request.message.text]}, http=lambda request: Response.of({"a": 1}), tools=tools)
assert_type(run(roll(host.tool_context(), sides=3)), int)
assert_type(greet("Ada"), dict[str, str])
assert_type(run(reader.events(host.agent_context())), list[Event])
assert_type(RunRequest("clerk", "Hi").message.text, str)
assert_type(Example("Hi", "Hello").output[0].text, str)
greet(5)  # type: ignore[arg-type]
http.get("https://example.com/", tiemout=2)  # type: ignore[call-arg, unused-coroutine]
agent(descripton="Reads.")  # type: ignore[call-overload]
'''


class Types(unittest.TestCase):
    def test_no_method_hides_a_type_in_the_hints_of_its_class(self) -> None:
        public = [getattr(hatchery_guest, name) for name in hatchery_guest.__all__]
        classes = {each for each in public if inspect.isclass(each)} | {context.Artifacts, context.Memory, http.Headers, sessions.Sessions}
        checked = 0
        for each in classes:
            # Type checkers look names up in the class first, unlike Python.
            names = {name: value for name, value in vars(each).items() if isinstance(value, FunctionType)}
            for name, method in names.items():
                if not name.startswith("_"):
                    with self.subTest(f"{each.__name__}.{name}"):
                        hints = {key: hint for key, hint in method.__annotations__.items() if hint.split("[")[0] in names}
                        self.assertEqual(hints, {})
                    checked += 1
        self.assertGreater(checked, 50)

    @unittest.skipUnless(importlib.util.find_spec("mypy"), "needs mypy: pip install mypy")
    def test_usual_code_has_the_right_types(self) -> None:
        programs = {"usage": USAGE, **{kind: (TEMPLATES / kind / "app.py").read_text() for kind in ("agent", "callback", "tool")}}
        with tempfile.TemporaryDirectory() as folder:
            for name, code in programs.items():
                Path(folder, f"{name}.py").write_text(code)
            options = ["--strict", "--follow-imports=silent", "--cache-dir", f"{folder}/cache"]
            checked = subprocess.run(
                [sys.executable, "-m", "mypy", *options, *(f"{name}.py" for name in programs)],
                cwd=folder, env={**os.environ, "MYPYPATH": str(ROOT / "src")}, capture_output=True, text=True,
            )  # fmt: skip
        self.assertEqual(checked.stderr, "")
        self.assertEqual(checked.stdout, f"Success: no issues found in {len(programs)} source files\n")


if __name__ == "__main__":
    unittest.main()
