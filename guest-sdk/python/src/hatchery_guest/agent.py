"""Definitions of agents. The host runs them; only custom agents and computed instructions are code."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Sequence
from dataclasses import dataclass, field
from typing import Any, Callable, Union, overload

from . import schema
from .callback import Callback
from .content import Content, Event, Json
from .context import AgentContext, Context
from .signature import signature
from .tool import Tool

ToolRef = Union[Tool, str]
CallbackRef = Union[Callback, str]
Instruction = Union[str, Callable[..., Union[str, Awaitable[str]]], None]


@dataclass
class Toolset:
    """A set of tools that is resolved for each run, such as all tools of a component, by its name."""

    name: str
    only: Sequence[str] = ()
    prefix: str | None = None


@dataclass(kw_only=True)
class Agent:
    """The options of all agents. Sub-agents are agents or names (``helper``, ``component/agent``)."""

    name: str
    description: str = ""
    sub_agents: Sequence["Agent | str"] = ()
    before_agent: Sequence[CallbackRef] = ()
    after_agent: Sequence[CallbackRef] = ()
    on_agent_error: Sequence[CallbackRef] = ()


@dataclass(kw_only=True)
class LlmAgent(Agent):
    """An agent that calls a model and the tools that the model requests, until the model gives its answer.

    ``instruction`` is a text with placeholders ``{key}``, or a function that computes it for each model call. ``model`` defaults to that
    of the nearest LLM agent above it. ``output_schema`` and ``input_schema`` are types or JSON Schemas.
    """

    model: str | None = None
    instruction: Instruction = None
    global_instruction: Instruction = None
    tools: Sequence[ToolRef] = ()
    toolsets: Sequence[Toolset | str] = ()
    without_history: bool = False
    input_schema: Any = None
    output_schema: Any = None
    output_key: str | None = None
    max_steps: int | None = None
    disallow_transfer_to_parent: bool = False
    disallow_transfer_to_peers: bool = False
    config: dict[str, Json] = field(default_factory=dict)
    before_model: Sequence[CallbackRef] = ()
    after_model: Sequence[CallbackRef] = ()
    before_tool: Sequence[CallbackRef] = ()
    after_tool: Sequence[CallbackRef] = ()
    on_model_error: Sequence[CallbackRef] = ()
    on_tool_error: Sequence[CallbackRef] = ()


@dataclass(kw_only=True)
class SequentialAgent(Agent):
    """Runs its sub-agents in order."""


@dataclass(kw_only=True)
class ParallelAgent(Agent):
    """Runs its sub-agents concurrently, each in its own branch."""


@dataclass(kw_only=True)
class LoopAgent(Agent):
    """Runs its sub-agents in order, repeatedly, until one escalates or after ``max_iterations``."""

    max_iterations: int | None = None


@dataclass(kw_only=True)
class CustomAgent(Agent):
    """An agent in code: a function that yields events, contents or texts. Created by ``@agent``."""

    run: Callable[..., Any]
    model: str | None = None
    tools: Sequence[ToolRef] = ()

    async def events(self, cx: AgentContext) -> AsyncIterator[Event]:
        """Runs the agent and returns its events."""
        context = signature(self.run).context
        result = self.run(**({context: cx} if context else {}))
        if inspect.isasyncgen(result):
            async for output in result:
                yield to_event(output)
        elif inspect.isgenerator(result):
            for output in result:
                yield to_event(output)
        else:
            output = await result if inspect.isawaitable(result) else result
            if output is not None:
                yield to_event(output)


def to_event(output: Any) -> Event:
    """Converts a text or a content to an event."""
    if isinstance(output, Event):
        return output
    if isinstance(output, Content):
        return Event(output)
    if isinstance(output, str):
        return Event.from_text(output)
    raise TypeError(f"an agent yields events, contents or texts, not a {type(output).__name__}")


@overload
def agent(run: Callable[..., Any]) -> CustomAgent: ...
@overload
def agent(
    *, name: str | None = None, model: str | None = None, tools: Sequence[ToolRef] = (), **common: Any
) -> Callable[[Callable[..., Any]], CustomAgent]: ...
def agent(run: Any = None, **options: Any) -> Any:
    """Turns a function into a custom agent: an async generator, which yields the agent's events. Its docstring is the description.

    ``model`` is the default of ``cx.generate``, ``tools`` are those that ``cx.call_tool`` can call. The other options are those of
    ``Agent``.
    """

    def decorate(run: Callable[..., Any]) -> CustomAgent:
        function = signature(run)
        required = next((parameter.name for parameter in function.parameters if parameter.required), None)
        if required:
            raise TypeError(f"agent `{run.__name__}`: no value for parameter `{required}`; annotate it with AgentContext if it is the context")
        return CustomAgent(run=run, **{"name": run.__name__, "description": function.description, **options})

    return decorate if run is None else decorate(run)


async def compute_instruction(instruction: Instruction, cx: Context) -> str:
    """Calls the function of a computed instruction."""
    if not callable(instruction):
        raise TypeError("the instruction is not computed")
    context = signature(instruction).context
    text = instruction(**({context: cx} if context else {}))
    return await text if inspect.isawaitable(text) else text


def json_schema(schema_or_type: Any) -> Json:
    """Returns a JSON Schema unchanged, and the JSON Schema of a type."""
    return schema_or_type if isinstance(schema_or_type, dict) else schema.schema_of(schema_or_type)
