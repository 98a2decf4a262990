"""Implements the contract's exports. The generated entry module uses those that a component needs."""

from __future__ import annotations

import json
import sys
import traceback
from typing import Any

import componentize_py_async_support
import wit_world
from componentize_py_types import Err
from wit_world.imports import types as wit

from ..agent import CustomAgent, LlmAgent, compute_instruction
from ..content import Content, Event
from ..context import AgentContext, CallbackContext, Context, ToolContext
from ..errors import Error, FatalError, describe
from ..export import EXPORTS
from ..schema import BadValue, dump
from . import convert, specs
from .host import ImportedHost

HOST = ImportedHost()

COMPONENT_FAILED = "COMPONENT_FAILED"


_is_seeded = False


def _seed_once() -> None:
    """Seeds the random numbers of an instance. They would be the same in all instances, which start from one snapshot."""
    global _is_seeded
    if not _is_seeded and "random" in sys.modules:
        sys.modules["random"].seed()
    _is_seeded = True


def _to_wit_error(error: BaseException) -> wit.Error:
    """Converts an exception. One without a code is also written to stderr, which is the host's log."""
    if isinstance(error, Error):
        return wit.Error(error.code, error.message)
    traceback.print_exception(error, file=sys.stderr)
    return wit.Error(COMPONENT_FAILED, describe(error))


def _to_wit_tool_error(error: BaseException) -> Any:
    if isinstance(error, FatalError):
        return wit.ToolError_Fatal(wit.Error(error.code, error.message))
    if isinstance(error, BadValue):
        return wit.ToolError_Recoverable(str(error))
    return wit.ToolError_Recoverable(_to_wit_error(error).message)


def _find(items: dict[str, Any], kind: str, name: str) -> Any:
    if name not in items:
        raise Err(wit.Error("NOT_FOUND", f"this component has no {kind} `{name}`"))
    return items[name]


class Tools:
    """Implements ``guest-tools``."""

    def describe(self) -> list[Any]:
        return [specs.tool(tool) for tool in EXPORTS.tools.values()]

    async def call(self, name: str, args: str) -> str:
        _seed_once()
        try:
            if name not in EXPORTS.tools:
                raise Error("NOT_FOUND", f"this component has no tool `{name}`")
            return convert.to_json(await EXPORTS.tools[name].call(json.loads(args), ToolContext(HOST)))
        except Exception as error:
            raise Err(_to_wit_tool_error(error)) from None


class Agents:
    """Implements ``guest-agents``."""

    def describe(self) -> list[Any]:
        return [specs.agent(agent) for agent in EXPORTS.agents.values()]

    async def compute_instruction(self, agent: str, global_: bool) -> str:
        _seed_once()
        found = _find(EXPORTS.agents, "agent", agent)
        try:
            if not isinstance(found, LlmAgent):
                raise TypeError("only LLM agents have instructions")
            return await compute_instruction(found.global_instruction if global_ else found.instruction, Context(HOST))
        except Exception as error:
            raise Err(_to_wit_error(error)) from None

    async def run(self, agent: str) -> Any:
        _seed_once()
        found = _find(EXPORTS.agents, "custom agent", agent)
        if not isinstance(found, CustomAgent):
            raise Err(wit.Error("NOT_FOUND", f"agent `{agent}` is run by the host"))
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
            failure = _to_wit_error(error)
            event = Event(error_code=failure.code, error_message=failure.message)
            await writer.write_all([convert.event_to_wit(event)])
        finally:
            await events.aclose()


class Callbacks:
    """Implements ``guest-callbacks``."""

    def describe(self) -> list[Any]:
        return [specs.callback(callback) for callback in EXPORTS.callbacks.values()]

    async def _call(self, name: str, *values: Any) -> Any:
        _seed_once()
        found = _find(EXPORTS.callbacks, "callback", name)
        try:
            return await found.call(CallbackContext(HOST), *values)
        except Exception as error:
            raise Err(_to_wit_error(error)) from None

    async def before_agent(self, name: str) -> Any:
        return _content(await self._call(name))

    async def after_agent(self, name: str) -> Any:
        return _content(await self._call(name))

    async def on_agent_error(self, name: str, failure: wit.Error) -> Any:
        return _content(await self._call(name, Error(failure.code, failure.message)))

    async def before_model(self, name: str, request: wit.LlmRequest) -> Any:
        revised = convert.request_from_wit(request)
        response = await self._call(name, revised)
        if response is not None:
            return wit.ModelAction_Respond(convert.response_to_wit(response))
        if revised == convert.request_from_wit(request):
            return wit.ModelAction_Proceed()
        return wit.ModelAction_Revise(convert.request_to_wit(revised))

    async def after_model(self, name: str, response: wit.LlmResponse) -> Any:
        revised = convert.response_from_wit(response)
        replacement = await self._call(name, revised)
        if replacement is None and revised == convert.response_from_wit(response):
            return None
        return convert.response_to_wit(revised if replacement is None else replacement)

    async def on_model_error(self, name: str, request: wit.LlmRequest, failure: wit.Error) -> Any:
        response = await self._call(name, convert.request_from_wit(request), Error(failure.code, failure.message))
        return None if response is None else convert.response_to_wit(response)

    async def before_tool(self, name: str, call: wit.ToolCall) -> Any:
        revised = convert.call_from_wit(call)
        response = await self._call(name, revised)
        if response is not None:
            return wit.ToolAction_Respond(convert.to_json(dump(response)))
        unchanged = revised.args == json.loads(call.args)
        return wit.ToolAction_Proceed() if unchanged else wit.ToolAction_Revise(convert.to_json(revised.args))

    async def after_tool(self, name: str, call: wit.ToolCall, response: str) -> Any:
        revised = json.loads(response)
        replacement = await self._call(name, convert.call_from_wit(call), revised)
        if replacement is None and revised == json.loads(response):
            return None
        return convert.to_json(revised if replacement is None else dump(replacement))

    async def on_tool_error(self, name: str, call: wit.ToolCall, failure: wit.Error) -> Any:
        response = await self._call(name, convert.call_from_wit(call), Error(failure.code, failure.message))
        return None if response is None else convert.to_json(dump(response))


def _content(output: Content | str | None) -> Any:
    if output is None:
        return None
    return convert.content_to_wit(output if isinstance(output, Content) else Content.model(str(output)))
