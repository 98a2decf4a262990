"""Definitions of agents. The host runs them; only custom agents and computed instructions are code."""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, Awaitable, Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, Callable, Literal, Union, overload

from . import schema
from .callback import Callback
from .code_executor import CodeExecutor
from .content import Event, Json
from .context import AgentContext, Context
from .examples import Example, ExampleProvider
from .signature import call_handler, handler_signature, signature
from .tool import Tool
from .toolset import ToolsetExport

CallbackRef = Union[Callback, str]
Instruction = Union[str, Callable[..., Union[str, Awaitable[str]]], None]


@dataclass
class ToolUse:
    """A tool of an agent, with options: arguments, and consent that the tool itself does not require.

    ``name`` refers to a tool of this component, ``component/tool``, or a built-in tool. A component's tool reads the arguments by
    ``cx.arguments``.
    """

    name: str
    args: dict[str, Json] = field(default_factory=dict)
    confirm: bool | None = None
    """Whether a person has to approve each call before it runs; ``None`` leaves this to the tool."""

    @staticmethod
    def agent(agent: "Agent | str") -> "ToolUse":
        """Uses an agent as a tool. The agent is not a sub-agent: its answer is the result of the call."""
        return ToolUse("AgentTool", {"agent": name_of(agent)})

    @staticmethod
    def examples_from(provider: ExampleProvider | str) -> "ToolUse":
        """Adds the examples of a provider to each request."""
        return ToolUse("ExampleTool", {"examples": name_of(provider)})


ToolRef = Union[Tool, ToolUse, str]


@dataclass
class Toolset:
    """A set of tools that is resolved before each model call: a toolset of this component or of the host, ``component/toolset``, or all tools of a
    component, by its name."""

    name: str
    only: Sequence[str] = ()
    prefix: str | None = None


@dataclass
class Thinking:
    """The planner that uses the model's built-in thinking, with settings of Gemini's ``thinkingConfig``."""

    budget: int | None = None
    """The maximum number of thinking tokens: 0 disables thinking, -1 lets the model decide."""
    include_thoughts: bool | None = None
    """Whether the model's thoughts are part of its answers, marked as thoughts."""
    extra: dict[str, Json] = field(default_factory=dict)
    """Other fields of ``thinkingConfig``."""

    def config(self) -> dict[str, Json]:
        """Returns the ``thinkingConfig``."""
        known = {"thinkingBudget": self.budget, "includeThoughts": self.include_thoughts}
        return {key: value for key, value in known.items() if value is not None} | self.extra


@dataclass
class CodeRunner:
    """Code execution by the host: an executor and its options."""

    executor: CodeExecutor | str
    error_retries: int | None = None
    """How often in one run the model may try again after failed code; 2 by default."""
    stateful: bool = False
    """Whether the code of a session sees what earlier code of the session left behind."""
    optimize_data_file: bool = False
    """Whether data files (CSV) in messages are passed to the code instead of the prompt."""
    code_delimiters: Sequence[tuple[str, str]] = ()
    """Delimiters of code in a response, tried in order; the default if empty."""
    result_delimiters: tuple[str, str] | None = None
    """Delimiters of results in the prompt."""


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

    ``instruction`` is a string with placeholders ``{key}``, or a function that computes it for each model call. ``model`` defaults to that
    of the nearest LLM agent above it. ``output_schema`` and ``input_schema`` are types or JSON Schemas. ``include_contents`` selects the
    part of the history that the model sees: the history of the session, or with ``"none"`` the current turn only. ``run_code`` runs the code
    that the model writes between two model calls, ``run_code_in_model`` lets the model itself run it.
    """

    model: str | None = None
    instruction: Instruction = None
    global_instruction: Instruction = None
    tools: Sequence[ToolRef] = ()
    toolsets: Sequence[Toolset | ToolsetExport | str] = ()
    examples: Sequence[Example] = ()
    examples_from: ExampleProvider | str | None = None
    planner: Thinking | Literal["plan_re_act"] | None = None
    run_code: CodeRunner | CodeExecutor | str | None = None
    run_code_in_model: bool = False
    include_contents: Literal["default", "none"] = "default"
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
    """An agent in code: a function that yields events, contents or strings. Created by ``@agent``."""

    run: Callable[..., Any]
    model: str | None = None
    tools: Sequence[ToolRef] = ()

    async def events(self, cx: AgentContext) -> AsyncGenerator[Event, None]:
        """Runs the agent and returns its events. Closing them closes the agent's generator."""
        result: Any = call_handler(self.run, signature(self.run), cx)
        if inspect.isasyncgen(result):
            async with aclosing(result):
                async for output in result:
                    yield Event.of(output)
        elif inspect.isgenerator(result):
            for output in result:
                yield Event.of(output)
        else:
            output = await result if inspect.isawaitable(result) else result
            if output is not None:
                yield Event.of(output)


@overload
def agent(run: Callable[..., Any]) -> CustomAgent: ...
@overload
def agent(
    *,
    name: str = ...,
    description: str = ...,
    model: str | None = None,
    tools: Sequence[ToolRef] = (),
    sub_agents: Sequence[Agent | str] = (),
    before_agent: Sequence[CallbackRef] = (),
    after_agent: Sequence[CallbackRef] = (),
    on_agent_error: Sequence[CallbackRef] = (),
) -> Callable[[Callable[..., Any]], CustomAgent]: ...
def agent(run: Any = None, **options: Any) -> Any:
    """Turns a function into a custom agent: an async generator, which yields the agent's events. Its docstring is the description.

    ``model`` is the default of ``cx.generate``, ``tools`` are the tools that ``cx.call_tool`` can call. The other options are those of
    ``Agent``.
    """

    def decorate(run: Callable[..., Any]) -> CustomAgent:
        function = handler_signature("agent", run, 0)
        return CustomAgent(run=run, **{"name": run.__name__, "description": function.description, **options})

    return decorate if run is None else decorate(run)


async def compute_instruction(instruction: Instruction, cx: Context) -> str:
    """Calls the function of a computed instruction."""
    if not callable(instruction):
        raise TypeError("the instruction is not computed")
    text = call_handler(instruction, signature(instruction), cx)
    text = await text if inspect.isawaitable(text) else text
    if not isinstance(text, str):
        raise TypeError(f"the function of an instruction returns a string, not `{type(text).__name__}`")
    return text


def json_schema(schema_or_type: Any) -> Json:
    """Returns a JSON Schema unchanged, and the JSON Schema of a type."""
    return schema_or_type if isinstance(schema_or_type, dict) else schema.schema_of(schema_or_type)


REFERENCES = (
    "sub_agents", "before_agent", "after_agent", "on_agent_error", "tools", "toolsets", "before_model", "after_model", "before_tool",
    "after_tool", "on_model_error", "on_tool_error",
)  # fmt: skip
"""The fields of agents that refer to items."""


def check_definition(agent: Agent) -> None:
    """Raises ``TypeError`` if an agent has options that the host cannot get, such as a reference to something that has no name."""
    try:
        for field in REFERENCES:
            _check_references(field, getattr(agent, field, ()))
        if isinstance(agent, LlmAgent):
            _check_options(agent)
    except TypeError as error:
        raise TypeError(f"agent `{agent.name}`: {error}") from None


def _check_references(field: str, items: Any) -> None:
    if isinstance(items, str) or not isinstance(items, Iterable):
        raise TypeError(f"`{field}` is a list of items and names, not a {type(items).__name__}")
    for item in items:
        if inspect.isroutine(item):
            decorator = {"tools": "@tool", "toolsets": "@toolset", "sub_agents": "@agent"}.get(field, f'@callback("{field}")')
            raise TypeError(f"`{field}` has the function `{item.__name__}`, which is no item; mark it with {decorator}")
        name_of(item)


def _check_options(agent: LlmAgent) -> None:
    for function in (agent.instruction, agent.global_instruction):
        if callable(function):
            handler_signature("instruction", function, 0)
    for hint in (agent.input_schema, agent.output_schema):
        if hint is not None:
            json_schema(hint)
    if agent.include_contents not in ("default", "none"):
        raise TypeError(f"`include_contents` is \"default\" or \"none\", not {agent.include_contents!r}")
    if not (agent.planner is None or agent.planner == "plan_re_act" or isinstance(agent.planner, Thinking)):
        raise TypeError(f"{agent.planner!r} is not a planner; use Thinking(…) or \"plan_re_act\"")


def references(agent: Agent) -> list[Any]:
    """Returns the items and names that an agent refers to."""
    items = [item for field in REFERENCES for item in getattr(agent, field, ())]
    if isinstance(agent, LlmAgent):
        runner = agent.run_code
        items += [agent.examples_from, runner.executor if isinstance(runner, CodeRunner) else runner]
    return items


def name_of(item: Any) -> str:
    """Returns the name of an item or of a reference to one."""
    name = item if isinstance(item, str) else getattr(item, "name", None)
    if not isinstance(name, str):
        raise TypeError(f"{item!r} has no name; use an item of this component, or a name")
    return name
