"""Write AI agents, tools and callbacks in Python, as WebAssembly components for a Hatchery host.

    from hatchery_guest import Context, export, tool

    @tool
    async def roll(cx: Context, sides: int = 6) -> int:
        \"\"\"Rolls a die.

        Args:
            sides: How many sides the die has.
        \"\"\"
        rolled = random.randint(1, sides)
        cx.state["last_roll"] = rolled
        return rolled

    export(roll)

``hatchery build`` builds the component. For unit tests in plain Python, ``hatchery_guest.testing`` has a mock host.
"""

from .agent import Agent, CustomAgent, LlmAgent, LoopAgent, ParallelAgent, SequentialAgent, Toolset, agent
from .callback import Callback, callback
from .content import (
    Blob, CodeExecutionResult, Content, Event, EventActions, ExecutableCode, FileData, FunctionCall, FunctionDeclaration,
    FunctionResponse, LlmRequest, LlmResponse, MemoryEntry, Part, RunInfo, ToolCall, ToolConfirmation,
)  # fmt: skip
from .context import AgentContext, CallbackContext, Context, ToolContext
from .errors import Error, FatalError, ToolError
from .export import export
from .tool import Tool, tool

__all__ = [
    "Agent", "AgentContext", "Blob", "Callback", "CallbackContext", "CodeExecutionResult", "Content", "Context", "CustomAgent",
    "Error", "Event", "EventActions", "ExecutableCode", "FatalError", "FileData", "FunctionCall", "FunctionDeclaration",
    "FunctionResponse", "LlmAgent", "LlmRequest", "LlmResponse", "LoopAgent", "MemoryEntry", "ParallelAgent", "Part", "RunInfo",
    "SequentialAgent", "Tool", "ToolCall", "ToolConfirmation", "ToolContext", "ToolError", "Toolset", "agent", "callback", "export",
    "tool",
]  # fmt: skip
