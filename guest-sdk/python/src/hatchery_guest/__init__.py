"""Write AI agents, tools, plugins and models in Python, as WebAssembly components for a Hatchery host.

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

``http`` sends requests to web servers. ``hatchery build`` builds the component. For unit tests in plain Python, ``hatchery_guest.testing`` has a mock host.
"""

from . import http
from .agent import (
    Agent, CodeRunner, CustomAgent, LlmAgent, LoopAgent, ParallelAgent, SequentialAgent, Thinking, Toolset, ToolUse, agent,
)  # fmt: skip
from .callback import Callback, callback
from .code_executor import CodeExecutor, CodeFile, CodeInput, CodeOutput, code_executor
from .content import (
    ArtifactVersion, Blob, CodeExecutionResult, Content, Event, EventActions, ExecutableCode, FileData, FunctionCall, FunctionDeclaration,
    FunctionResponse, LlmRequest, LlmResponse, MemoryEntry, Part, ToolCall, ToolConfirmation,
)  # fmt: skip
from .context import AgentContext, CallbackContext, Context, ToolContext
from .errors import Error, FatalError, ToolError
from .examples import Example, ExampleProvider, examples
from .export import export
from .live import (
    LiveConnection, LiveMessage, LiveModel, LiveRun, LiveRunRequest, LiveSignal, ToolCalls, ToolCallsCancelled, ToolResponses,
    Transcription, Usage, live_model,
)  # fmt: skip
from .model import Model, model
from .plugin import Plugin, plugin
from .run_info import PluginInfo, RemainingLimits, RunInfo
from .runner import Run, Runner, RunRequest
from .sessions import EventWindow, SessionInfo, Sessions
from .summarizer import Summarizer, summarizer
from .tool import Tool, tool
from .toolset import DynamicTool, ToolsetExport, toolset

__all__ = [
    "Agent", "AgentContext", "ArtifactVersion", "Blob", "Callback", "CallbackContext", "CodeExecutionResult", "CodeExecutor", "CodeFile", "CodeInput",
    "CodeOutput", "CodeRunner", "Content", "Context", "CustomAgent", "DynamicTool", "Error", "Event", "EventActions", "EventWindow",
    "Example", "ExampleProvider", "ExecutableCode", "FatalError", "FileData", "FunctionCall", "FunctionDeclaration",
    "FunctionResponse", "LiveConnection", "LiveMessage", "LiveModel", "LiveRun", "LiveRunRequest", "LiveSignal", "LlmAgent", "LlmRequest",
    "LlmResponse", "LoopAgent", "MemoryEntry", "Model", "ParallelAgent", "Part", "Plugin", "PluginInfo", "RemainingLimits", "Run",
    "RunInfo", "RunRequest", "Runner", "SequentialAgent", "SessionInfo", "Sessions", "Summarizer", "Thinking", "Tool", "ToolCall",
    "ToolCalls", "ToolCallsCancelled", "ToolConfirmation", "ToolContext", "ToolError", "ToolResponses", "ToolUse", "Toolset",
    "ToolsetExport", "Transcription", "Usage", "agent", "callback", "code_executor", "examples", "export", "http", "live_model", "model",
    "plugin", "summarizer", "tool", "toolset",
]  # fmt: skip
