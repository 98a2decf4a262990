"""A callback. Build it with `hatchery build`; agents list it as `@NAME@/check` in `before_tool_callbacks`."""

from hatchery_guest import ToolCall, callback, export


@callback("before_tool")
async def check(call: ToolCall) -> dict[str, str] | None:
    """Refuses tool calls with an empty text. A result is returned instead of calling the tool."""
    if call.args.get("text") == "":
        return {"error": "`text` must not be empty"}
    return None


export(check)
