"""A callback. `hatchery build` makes a component of it; agents name it `@NAME@/check` at `before_tool_callbacks`."""

from hatchery_guest import ToolCall, callback, export


@callback("before_tool")
async def check(call: ToolCall):
    """Answers in place of a tool that is given an empty text."""
    if call.args.get("text") == "":
        return {"error": "there is no text"}
    return None


export(check)
