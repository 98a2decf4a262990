"""Agents as data: the host runs them. Only a custom agent and a computed instruction are code."""

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
    """A set of tools that is looked up when its agent runs; a component's name stands for all its tools."""

    name: str
    only: Sequence[str] = ()
    prefix: str | None = None


@dataclass(kw_only=True)
class Agent:
    """What all agents have. Those below it are agents, or names (``helper``, ``component/agent``)."""

    name: str
    description: str = ""
    sub_agents: Sequence["Agent | str"] = ()
    before_agent: Sequence[CallbackRef] = ()
    after_agent: Sequence[CallbackRef] = ()
    on_agent_error: Sequence[CallbackRef] = ()


@dataclass(kw_only=True)
class LlmAgent(Agent):
    """Calls a model in a loop, with the tools that it asks for.

    ``instruction`` is text with placeholders ``{key}``, or a function that computes it for each model call. Without a ``model`` it uses
    that of the nearest LLM agent above it. ``output_schema`` and ``input_schema`` are types or JSON Schemas.
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
    """Runs the agents below it in order."""


@dataclass(kw_only=True)
class ParallelAgent(Agent):
    """Runs the agents below it at the same time, each in a branch of its own."""


@dataclass(kw_only=True)
class LoopAgent(Agent):
    """Runs the agents below it in order, again and again, until one escalates or ``max_iterations`` are over."""

    max_iterations: int | None = None


@dataclass(kw_only=True)
class CustomAgent(Agent):
    """An agent that is code: a function that yields events, contents or texts. ``@agent`` makes one."""

    run: Callable[..., Any]
    model: str | None = None
    tools: Sequence[ToolRef] = ()

    async def events(self, cx: AgentContext) -> AsyncIterator[Event]:
        """Runs it."""
        read = signature(self.run)
        running = self.run(**({read.context: cx} if read.context else {}))
        if inspect.isasyncgen(running):
            async for said in running:
                yield event(said)
        elif inspect.isgenerator(running):
            for said in running:
                yield event(said)
        else:
            said = await running if inspect.isawaitable(running) else running
            if said is not None:
                yield event(said)


def event(said: Any) -> Event:
    """An event, a content or a text as an event."""
    if isinstance(said, Event):
        return said
    if isinstance(said, Content):
        return Event(said)
    if isinstance(said, str):
        return Event.say(said)
    raise TypeError(f"an agent yields events, contents or texts, not a {type(said).__name__}")


@overload
def agent(run: Callable[..., Any]) -> CustomAgent: ...
@overload
def agent(
    *, name: str | None = None, model: str | None = None, tools: Sequence[ToolRef] = (), **common: Any
) -> Callable[[Callable[..., Any]], CustomAgent]: ...
def agent(run: Any = None, **options: Any) -> Any:
    """Makes a custom agent of an async generator, which yields what the agent says. Its docstring is the description.

    ``model`` is the one that ``cx.generate`` asks by default, ``tools`` are those that ``cx.call_tool`` may call; the other options are
    those of ``Agent``.
    """

    def make(run: Callable[..., Any]) -> CustomAgent:
        read = signature(run)
        required = next((parameter.name for parameter in read.parameters if parameter.required), None)
        if required:
            raise TypeError(f"agent `{run.__name__}` is given nothing for `{required}`; annotate it with AgentContext, if it is that")
        return CustomAgent(run=run, **{"name": run.__name__, "description": read.description, **options})

    return make if run is None else make(run)


async def instruct(instruction: Instruction, cx: Context) -> str:
    """Computes an instruction that is a function."""
    if not callable(instruction):
        raise TypeError("the instruction is not computed")
    read = signature(instruction)
    text = instruction(**({read.context: cx} if read.context else {}))
    return await text if inspect.isawaitable(text) else text


def json_schema(shape: Any) -> Json:
    """A type's JSON Schema; a dict is one already."""
    return shape if isinstance(shape, dict) else schema.schema_of(shape)
