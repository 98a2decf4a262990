"""Descriptions of the exports in the types of the contract."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from wit_world.imports import specs as wit

from ..agent import (
    Agent, CodeRunner, CustomAgent, Instruction, LlmAgent, LoopAgent, ParallelAgent, SequentialAgent, Thinking, Toolset, ToolRef, ToolUse,
    json_schema, name_of,
)  # fmt: skip
from ..callback import Callback
from ..plugin import Plugin
from ..toolset import ToolsetExport, ToolsetTool
from .convert import declaration_to_wit, example_to_wit, to_json, to_optional_json


def tool(tool: ToolsetTool) -> Any:
    return wit.ToolSpec(declaration_to_wit(tool.declaration), tool.long_running, tool.confirm)


def callback(callback: Callback) -> Any:
    return wit.CallbackSpec(callback.name, [callback.hook.replace("_", "-")])


def plugin(plugin: Plugin) -> Any:
    return wit.PluginSpec(plugin.name, [hook.replace("_", "-") for hook in plugin.hooks])


def names(items: Sequence[Any]) -> list[str]:
    """Returns the names of items and references."""
    return [name_of(item) for item in items]


def tools(items: Sequence[ToolRef]) -> list[Any]:
    """The tools of an agent."""
    uses = [item if isinstance(item, ToolUse) else ToolUse(name_of(item)) for item in items]
    return [wit.ToolUse(use.name, to_optional_json(use.args), use.confirm) for use in uses]


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
        examples=_examples(agent),
        planner=_planner(agent),
        code_execution=_code_execution(agent),
        include_contents=wit.IncludeContents.NONE if agent.include_contents == "none" else wit.IncludeContents.DEFAULT,
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


def _examples(agent: LlmAgent) -> Any:
    if agent.examples_from is not None:
        return wit.Examples_Chosen(name_of(agent.examples_from))
    return wit.Examples_Fixed([example_to_wit(example) for example in agent.examples]) if agent.examples else wit.Examples_None_()


def _planner(agent: LlmAgent) -> Any:
    if agent.planner is None:
        return wit.Planner_None_()
    if isinstance(agent.planner, Thinking):
        return wit.Planner_Thinking(to_json(agent.planner.config()))
    return wit.Planner_PlanReAct()


def _code_execution(agent: LlmAgent) -> Any:
    runner = agent.run_code
    if runner is None:
        return wit.CodeExecution_BuiltIn() if agent.run_code_in_model else wit.CodeExecution_None_()
    if not isinstance(runner, CodeRunner):
        runner = CodeRunner(runner)
    return wit.CodeExecution_Host(
        wit.CodeRunner(
            name_of(runner.executor),
            runner.error_retries,
            runner.stateful,
            runner.optimize_data_file,
            list(runner.code_delimiters),
            runner.result_delimiters,
        )
    )


def _toolset(toolset: Toolset | ToolsetExport | str) -> Any:
    if not isinstance(toolset, Toolset):
        toolset = Toolset(name_of(toolset))
    return wit.Toolset(toolset.name, list(toolset.only), toolset.prefix)


def _schema(schema_or_type: Any) -> str | None:
    return None if schema_or_type is None else to_json(json_schema(schema_or_type))
