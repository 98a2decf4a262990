"""Definitions of agents."""

import unittest
from typing import Any

from hatchery_guest import Context, LlmAgent, Thinking
from hatchery_guest.agent import compute_instruction
from hatchery_guest.export import Exports
from hatchery_guest.testing import MockHost, run


def greeting(cx: Context) -> str:
    return f"Greet {cx.info.user}."


def advice(topic: str) -> str:
    return f"Give advice on {topic}."


class Definitions(unittest.TestCase):
    def test_an_option_that_is_not_possible_is_reported_when_the_agent_is_exported(self) -> None:
        cases: list[tuple[dict[str, Any], str]] = [
            ({"tools": "roll"}, "`tools` is a list of items and names, not a str"),
            ({"tools": LlmAgent(name="y")}, "`tools` is a list of items and names, not a LlmAgent"),
            ({"sub_agents": [LlmAgent(name="y", planner="think")]}, "'think' is not a planner; use Thinking(…) or \"plan_re_act\""),
            ({"include_contents": "all"}, "`include_contents` is \"default\" or \"none\", not 'all'"),
            ({"output_schema": bytes}, "bytes has no JSON Schema; use str, int"),
            ({"instruction": advice}, "instruction `advice`: no value for parameter `topic`; annotate it with Context"),
            ({"tools": [advice]}, "`tools` has the function `advice`, which is no item; mark it with @tool"),
            ({"before_tool": [advice]}, "`before_tool` has the function `advice`, which is no item; mark it with @callback(\"before_tool\")"),
        ]
        for options, message in cases:
            with self.subTest(options=options), self.assertRaises(TypeError) as caught:
                Exports().add(LlmAgent(name="x", **options))
            agent = "y" if "sub_agents" in options else "x"
            self.assertTrue(str(caught.exception).startswith(f"agent `{agent}`: {message}"), caught.exception)

    def test_possible_options_are_accepted(self) -> None:
        for options in [{"planner": "plan_re_act"}, {"planner": Thinking()}, {"include_contents": "none"}, {"instruction": greeting}]:
            Exports().add(LlmAgent(name="x", output_schema=dict[str, int], **options))

    def test_the_function_of_an_instruction_returns_a_string(self) -> None:
        cx = MockHost().read_only_context()
        self.assertEqual(run(compute_instruction(greeting, cx)), "Greet user.")
        with self.assertRaisesRegex(TypeError, "the function of an instruction returns a string, not `NoneType`"):
            run(compute_instruction(lambda: None, cx))


if __name__ == "__main__":
    unittest.main()
