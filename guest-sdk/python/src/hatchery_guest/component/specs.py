"""Descriptions of the exports in the types of the contract."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from wit_world.imports import specs as wit

from ..agent import Agent, CustomAgent, Instruction, LlmAgent, LoopAgent, ParallelAgent, SequentialAgent, Toolset, json_schema
from ..callback import Callback
from ..tool import Tool
from .convert import declaration_to_wit, to_json, to_optional_json


def tool(tool: Tool) -> Any:
    return wit.ToolSpec(declaration_to_wit(tool.declaration), tool.long_running, tool.confirm)


def callback(callback: Callback) -> Any:
    return wit.CallbackSpec(callback.name, [callback.hook.replace("_", "-")])


def names(items: Sequence[Any]) -> list[str]:
    """Returns the names of items and references."""
    return [item if isinstance(item, str) else item.name for item in items]


def tools(items: Sequence[Any]) -> list[Any]:
    """The tools of an agent."""
    return [wit.ToolUse(name, None, None) for name in names(items)]


def agent(agent: Agent) -> Any:
    return wit.AgentSpec(
        agent.name,
        agent.description,
        _kind(agent),
        names(agent.sub_agents),
        names(agent.before_agent),
        names(agent.after_agent),
        names(agent.on_agent_error),
    )


def _kind(agent: Agent) -> Any:
    match agent:
        case LlmAgent():
            return wit.AgentKind_Llm(_llm(agent))
        case SequentialAgent():
            return wit.AgentKind_Sequential()
        case ParallelAgent():
            return wit.AgentKind_Parallel()
        case LoopAgent():
            return wit.AgentKind_Loop(agent.max_iterations)
        case CustomAgent():
            return wit.AgentKind_Custom(wit.CustomAgent(agent.model, tools(agent.tools)))
    raise TypeError(f"`{agent.name}` is not of a known agent class; create an LlmAgent, or mark a function with @agent")


def _llm(agent: LlmAgent) -> Any:
    return wit.LlmAgent(
        model=agent.model,
        instruction=_instruction(agent.instruction),
        global_instruction=_instruction(agent.global_instruction),
        tools=tools(agent.tools),
        toolsets=[_toolset(toolset) for toolset in agent.toolsets],
        examples=wit.Examples_None_(),
        planner=wit.Planner_None_(),
        code_execution=wit.CodeExecution_None_(),
        include_contents=wit.IncludeContents.NONE if agent.without_history else wit.IncludeContents.DEFAULT,
        input_schema=_schema(agent.input_schema),
        output_schema=_schema(agent.output_schema),
        output_key=agent.output_key,
        max_steps=agent.max_steps,
        disallow_transfer_to_parent=agent.disallow_transfer_to_parent,
        disallow_transfer_to_peers=agent.disallow_transfer_to_peers,
        config=to_optional_json(agent.config),
        before_model=names(agent.before_model),
        after_model=names(agent.after_model),
        before_tool=names(agent.before_tool),
        after_tool=names(agent.after_tool),
        on_model_error=names(agent.on_model_error),
        on_tool_error=names(agent.on_tool_error),
    )


def _instruction(instruction: Instruction) -> Any:
    if instruction is None:
        return wit.Instruction_None_()
    return wit.Instruction_Text(instruction) if isinstance(instruction, str) else wit.Instruction_Computed()


def _toolset(toolset: Toolset | str) -> Any:
    if isinstance(toolset, str):
        toolset = Toolset(toolset)
    return wit.Toolset(toolset.name, list(toolset.only), toolset.prefix)


def _schema(schema_or_type: Any) -> str | None:
    return None if schema_or_type is None else to_json(json_schema(schema_or_type))
