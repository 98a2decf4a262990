"""The same items in each guest language: Python. See `../rust`, `../js` and `../plain`."""

import asyncio
import random
from typing import Literal

from hatchery_guest import (
    AgentContext, CallbackContext, Error, FatalError, LlmAgent, LlmRequest, ToolCall, ToolContext, agent, callback, export, tool,
)  # fmt: skip


@tool
async def scale(number: float, by: int = 2, style: Literal["plain", "text"] = "plain") -> dict:
    """Multiplies a number.

    Args:
        number: The number.
        by: How often it is taken.
    """
    result = number * by
    return {"result": f"{result:g}" if style == "text" else result}


@tool
async def refuse(reason: str) -> None:
    """Fails with an error for the model."""
    raise ValueError(reason)


@tool
async def break_off(reason: str) -> None:
    """Fails with an error that ends the run."""
    raise FatalError("BROKEN", reason)


@tool
async def remember(key: str, value: dict, cx: ToolContext) -> dict:
    """Sets a state key and returns the old and the new value."""
    before = cx.state.get(key)
    cx.state[key] = value
    return {"before": before, "now": cx.state[key]}


@tool
async def setting(key: str, cx: ToolContext) -> object:
    """Returns one of the component's own settings."""
    return cx.config(key)


@tool
async def note(text: str, cx: ToolContext) -> bool:
    """Writes a line to the log."""
    cx.log.info(text, language="python")
    return True


@tool
async def keep(name: str, text: str, cx: ToolContext) -> dict:
    """Saves an artifact and loads it again."""
    version = await cx.artifacts.save(name, text)
    part = await cx.artifacts.load(name)
    return {"version": version, "text": part and part.text, "names": await cx.artifacts.list()}


@tool
async def both(cx: ToolContext) -> list:
    """Calls another tool twice at the same time."""
    scaled = await asyncio.gather(cx.call_tool("scale", number=1), cx.call_tool("scale", number=2))
    return [each["result"] for each in scaled]


@tool
async def chance() -> int:
    """Returns a random number."""
    return random.getrandbits(48)


@agent(model="any")
async def storyteller(cx: AgentContext):
    """Says two lines, and what a model adds; fails when the user wants it to."""
    yield "one"
    cx.state["told"] = 2
    yield "two"
    if cx.user_content.text == "fail":
        raise Error("STORY_LOST", "the story is lost")
    answer = await cx.generate(LlmRequest.from_prompt("Go on.", instruction="Be brief."))
    yield answer.text


@agent
def echo(cx: AgentContext):
    """Emits the events of the session once more."""
    yield from cx.events()


@callback("before_tool")
async def veto(call: ToolCall, cx: CallbackContext):
    """Answers for calls with the number 13, and takes 99 for 1."""
    if call.args.get("number") == 13:
        cx.state["vetoed"] = call.tool
        return {"vetoed": True}
    if call.args.get("number") == 99:
        call.args["number"] = 1
    return None


@callback("after_tool")
async def stamp(call: ToolCall, response: dict):
    """Marks the answers of a tool."""
    if call.tool == "note":
        response["stamped"] = True


async def manner(cx: ToolContext) -> str:
    return f"Speak to {cx.info.user}."


clerk = LlmAgent(
    name="clerk", description="Calculates.", model="any", instruction=manner, tools=[scale, note], before_tool=[veto], after_tool=[stamp]
)

export(scale, refuse, break_off, remember, setting, note, keep, both, chance, storyteller, echo, veto, stamp, clerk)
