"""Implements the contract's exports. The generated entry module uses those that a component needs."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import componentize_py_async_support
import wit_world
from componentize_py_types import Err
from wit_world.imports import specs as wit_specs
from wit_world.imports import types as wit

from ..agent import CustomAgent, LlmAgent, compute_instruction
from ..code_executor import CodeFile, CodeInput
from ..content import Event, LlmResponse
from ..context import AgentContext, Context, ToolContext
from ..export import EXPORTS
from ..live import LiveConnection
from . import convert, event_loop, http, live, specs
from .calls import HOST, find, find_for_tool, to_wit_error, to_wit_tool_error
from .hooks import Callbacks, Plugins

event_loop.install()
http.install()

__all__ = ["Agents", "Callbacks", "CodeExecutors", "Examples", "LiveModels", "Models", "Plugins", "Summarizers", "Tools", "Toolsets"]


class Tools:
    """Implements ``guest-tools``."""

    def describe(self) -> list[Any]:
        return [specs.tool(tool) for tool in EXPORTS.tools.values()]

    async def call(self, name: str, args: str) -> str:
        try:
            tool = find_for_tool(EXPORTS.tools, "tool", name)
            return convert.to_json(await tool.call(json.loads(args), ToolContext(HOST)))
        except Exception as error:
            raise Err(to_wit_tool_error(error)) from None


class Toolsets:
    """Implements ``guest-toolsets``."""

    def describe(self) -> list[str]:
        return list(EXPORTS.toolsets)

    async def tools(self, name: str) -> list[Any]:
        toolset = find(EXPORTS.toolsets, "toolset", name)
        try:
            return [specs.tool(tool) for tool in await toolset.tools(Context(HOST))]
        except Exception as error:
            raise Err(to_wit_error(error)) from None

    async def call(self, toolset: str, tool: str, args: str) -> str:
        try:
            found = find_for_tool(EXPORTS.toolsets, "toolset", toolset)
            return convert.to_json(await found.call(tool, json.loads(args), ToolContext(HOST)))
        except Exception as error:
            raise Err(to_wit_tool_error(error)) from None


class Agents:
    """Implements ``guest-agents``."""

    def describe(self) -> list[Any]:
        return [specs.agent(agent) for agent in EXPORTS.agents.values()]

    async def compute_instruction(self, agent: str, global_: bool) -> str:
        found = find(EXPORTS.agents, "agent", agent)
        try:
            if not isinstance(found, LlmAgent):
                raise TypeError("only LLM agents have instructions")
            return await compute_instruction(found.global_instruction if global_ else found.instruction, Context(HOST))
        except Exception as error:
            raise Err(to_wit_error(error)) from None

    async def run(self, agent: str) -> Any:
        found = find({name: each for name, each in EXPORTS.agents.items() if isinstance(each, CustomAgent)}, "custom agent", agent)
        writer, reader = wit_world.types_event_stream()
        componentize_py_async_support.spawn(_emit_all(found, writer))
        return reader


async def _emit_all(agent: CustomAgent, writer: Any) -> None:
    """Writes an agent's events, each after the host has read the one before. Stops the agent when the host stops reading."""
    with writer:
        events = agent.events(AgentContext(HOST))
        try:
            async for event in events:
                await writer.write_all([convert.event_to_wit(event)])
                if writer.reader_dropped:
                    break
        except Exception as error:
            failure = to_wit_error(error)
            event = Event(error_code=failure.code, error_message=failure.message)
            await writer.write_all([convert.event_to_wit(event)])
        finally:
            await events.aclose()


class Models:
    """Implements ``guest-models``."""

    def describe(self) -> list[str]:
        return list(EXPORTS.models)

    async def generate(self, name: str, request: Any, streaming: bool) -> Any:
        model = find(EXPORTS.models, "model", name)
        try:
            asked = convert.request_from_wit(request)
            if streaming:
                responses = _partial(model.responses(asked, Context(HOST)))
            else:
                responses = _only(await model.answer(asked, Context(HOST)))
            first = await anext(responses, None)
        except Exception as error:
            raise Err(to_wit_error(error)) from None
        writer, reader = wit_world.types_llm_response_stream()
        componentize_py_async_support.spawn(_answer(first, responses, writer))
        return reader


async def _only(response: LlmResponse) -> AsyncGenerator[LlmResponse, None]:
    yield response


async def _partial(responses: AsyncGenerator[LlmResponse, None]) -> AsyncGenerator[LlmResponse, None]:
    async with aclosing(responses):
        async for response in responses:
            response.partial = response.error_code is None
            yield response


async def _answer(first: LlmResponse | None, responses: Any, writer: Any) -> None:
    """Writes a model's responses, each after the host has read the one before. A failure is the last one."""
    with writer:
        try:
            response = first
            while response is not None:
                await writer.write_all([convert.response_to_wit(response)])
                if writer.reader_dropped:
                    break
                response = await anext(responses, None)
        except Exception as error:
            failure = to_wit_error(error)
            failed = LlmResponse(error_code=failure.code, error_message=failure.message)
            await writer.write_all([convert.response_to_wit(failed)])
        finally:
            await responses.aclose()


class LiveModels:
    """Implements ``guest-live-models``."""

    def describe(self) -> list[str]:
        return list(EXPORTS.live_models)

    async def connect(self, name: str, request: Any, config: str, requests: Any) -> Any:
        model = find(EXPORTS.live_models, "live model", name)
        connection = LiveConnection(live.requests_from_wit(requests), json.loads(config))
        responses = model.responses(convert.request_from_wit(request), connection, Context(HOST))
        writer, reader = wit_world.types_live_response_stream()
        componentize_py_async_support.spawn(_converse(responses, writer))
        return reader


async def _converse(responses: Any, writer: Any) -> None:
    """Writes the responses of a live model, each after the host has read the previous one. A failure is the last one."""
    with writer:
        try:
            async for response in responses:
                await writer.write_all([live.response_to_wit(response)])
                if writer.reader_dropped:
                    break
        except Exception as error:
            await writer.write_all([wit.LiveResponse_Failed(to_wit_error(error))])
        finally:
            await responses.aclose()


class CodeExecutors:
    """Implements ``guest-code-executors``."""

    def describe(self) -> list[str]:
        return list(EXPORTS.code_executors)

    async def execute(self, name: str, input: Any) -> Any:
        try:
            executor = find_for_tool(EXPORTS.code_executors, "code executor", name)
            files = [CodeFile(file.name, file.content, file.mime_type) for file in input.input_files]
            output = await executor.execute(CodeInput(input.code, files, input.execution_id), Context(HOST))
            written = [wit_specs.CodeFile(file.name, file.mime_type, file.content) for file in output.output_files]
            return wit_specs.CodeOutput(output.stdout, output.stderr, written)
        except Exception as error:
            raise Err(to_wit_tool_error(error)) from None


class Summarizers:
    """Implements ``guest-summarizers``."""

    def describe(self) -> list[str]:
        return list(EXPORTS.summarizers)

    async def summarize(self, name: str, events: list[Any]) -> Any:
        summarizer = find(EXPORTS.summarizers, "summarizer", name)
        try:
            summary = await summarizer.summarize([convert.event_from_wit(event) for event in events], Context(HOST))
            return None if summary is None else convert.content_to_wit(summary)
        except Exception as error:
            raise Err(to_wit_error(error)) from None


class Examples:
    """Implements ``guest-examples``."""

    def describe(self) -> list[str]:
        return list(EXPORTS.examples)

    async def examples(self, name: str, query: str) -> list[Any]:
        provider = find(EXPORTS.examples, "example provider", name)
        try:
            return [convert.example_to_wit(example) for example in await provider.examples(query, Context(HOST))]
        except Exception as error:
            raise Err(to_wit_error(error)) from None
