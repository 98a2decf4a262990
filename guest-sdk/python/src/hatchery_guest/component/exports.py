"""The contract's exports, by what the program has exported. Generated code puts those that a component needs into its entry module."""

from __future__ import annotations

import json
import sys
import traceback
from typing import Any

import componentize_py_async_support
import wit_world
from componentize_py_types import Err
from wit_world.imports import types as wit

from ..agent import CustomAgent, LlmAgent, event, instruct
from ..content import Content
from ..context import AgentContext, CallbackContext, Context, ToolContext
from ..errors import Error, FatalError, describe
from ..offer import OFFER
from ..schema import BadValue, dump
from . import convert, specs
from .host import ImportedHost

HOST = ImportedHost()

COMPONENT_FAILED = "COMPONENT_FAILED"


def _wake() -> None:
    """The component is a snapshot of a program that has started: what chance it knows would be the same in each instance."""
    global _wake
    if "random" in sys.modules:
        sys.modules["random"].seed()
    _wake = _awake


def _awake() -> None:
    pass


def _failure(error: BaseException) -> wit.Error:
    """An exception for the host; what the code did not mean to raise also goes to stderr, which is the log."""
    if isinstance(error, Error):
        return wit.Error(error.code, error.message)
    traceback.print_exception(error, file=sys.stderr)
    return wit.Error(COMPONENT_FAILED, describe(error))


def _tool_error(error: BaseException) -> Any:
    if isinstance(error, FatalError):
        return wit.ToolError_Fatal(wit.Error(error.code, error.message))
    if isinstance(error, BadValue):
        return wit.ToolError_Model(str(error))
    return wit.ToolError_Model(_failure(error).message)


def _find(items: dict[str, Any], kind: str, name: str) -> Any:
    if name not in items:
        raise Err(wit.Error("NOT_FOUND", f"this component has no {kind} `{name}`"))
    return items[name]


class Tools:
    """``guest-tools``."""

    def describe(self) -> list[Any]:
        return [specs.tool(tool) for tool in OFFER.tools.values()]

    async def call(self, name: str, args: str) -> str:
        _wake()
        try:
            if name not in OFFER.tools:
                raise Error("NOT_FOUND", f"this component has no tool `{name}`")
            return convert.to_json(await OFFER.tools[name].call(json.loads(args), ToolContext(HOST)))
        except Exception as error:
            raise Err(_tool_error(error)) from None


class Agents:
    """``guest-agents``."""

    def describe(self) -> list[Any]:
        return [specs.agent(agent) for agent in OFFER.agents.values()]

    async def instruct(self, agent: str, global_: bool) -> str:
        _wake()
        found = _find(OFFER.agents, "agent", agent)
        try:
            if not isinstance(found, LlmAgent):
                raise TypeError("it is no LLM agent")
            return await instruct(found.global_instruction if global_ else found.instruction, Context(HOST))
        except Exception as error:
            raise Err(_failure(error)) from None

    async def run(self, agent: str) -> Any:
        _wake()
        found = _find(OFFER.agents, "custom agent", agent)
        if not isinstance(found, CustomAgent):
            raise Err(wit.Error("NOT_FOUND", f"agent `{agent}` is run by the host"))
        writer, reader = wit_world.types_event_stream()
        componentize_py_async_support.spawn(_say_all(found, writer))
        return reader


async def _say_all(agent: CustomAgent, writer: Any) -> None:
    """Writes what an agent says, each event when the one before was taken; stops it when nobody listens any more."""
    with writer:
        events = agent.events(AgentContext(HOST))
        try:
            async for said in events:
                await writer.write_all([convert.event_to_wit(said)])
                if writer.reader_dropped:
                    break
        except Exception as error:
            failure = _failure(error)
            failed = event("")
            failed.content, failed.error_code, failed.error_message = None, failure.code, failure.message
            await writer.write_all([convert.event_to_wit(failed)])
        finally:
            await events.aclose()


class Callbacks:
    """``guest-callbacks``."""

    def describe(self) -> list[Any]:
        return [specs.callback(callback) for callback in OFFER.callbacks.values()]

    async def _call(self, name: str, *given: Any) -> Any:
        _wake()
        found = _find(OFFER.callbacks, "callback", name)
        try:
            return await found.call(CallbackContext(HOST), *given)
        except Exception as error:
            raise Err(_failure(error)) from None

    async def before_agent(self, name: str) -> Any:
        return _content(await self._call(name))

    async def after_agent(self, name: str) -> Any:
        return _content(await self._call(name))

    async def on_agent_error(self, name: str, failure: wit.Error) -> Any:
        return _content(await self._call(name, Error(failure.code, failure.message)))

    async def before_model(self, name: str, request: wit.LlmRequest) -> Any:
        asked = convert.request_from_wit(request)
        given = await self._call(name, asked)
        if given is not None:
            return wit.ModelAction_Respond(convert.response_to_wit(given))
        revised = convert.request_to_wit(asked)
        unchanged = asked == convert.request_from_wit(request)
        return wit.ModelAction_Proceed() if unchanged else wit.ModelAction_Revise(revised)

    async def after_model(self, name: str, response: wit.LlmResponse) -> Any:
        answered = convert.response_from_wit(response)
        given = await self._call(name, answered)
        if given is None and answered == convert.response_from_wit(response):
            return None
        return convert.response_to_wit(answered if given is None else given)

    async def on_model_error(self, name: str, request: wit.LlmRequest, failure: wit.Error) -> Any:
        given = await self._call(name, convert.request_from_wit(request), Error(failure.code, failure.message))
        return None if given is None else convert.response_to_wit(given)

    async def before_tool(self, name: str, call: wit.ToolCall) -> Any:
        called = convert.call_from_wit(call)
        given = await self._call(name, called)
        if given is not None:
            return wit.ToolAction_Respond(convert.to_json(dump(given)))
        unchanged = called.args == json.loads(call.args)
        return wit.ToolAction_Proceed() if unchanged else wit.ToolAction_Revise(convert.to_json(called.args))

    async def after_tool(self, name: str, call: wit.ToolCall, response: str) -> Any:
        answered = json.loads(response)
        given = await self._call(name, convert.call_from_wit(call), answered)
        if given is None and answered == json.loads(response):
            return None
        return convert.to_json(answered if given is None else dump(given))

    async def on_tool_error(self, name: str, call: wit.ToolCall, failure: wit.Error) -> Any:
        given = await self._call(name, convert.call_from_wit(call), Error(failure.code, failure.message))
        return None if given is None else convert.to_json(dump(given))


def _content(given: Any) -> Any:
    if given is None:
        return None
    return convert.content_to_wit(given if isinstance(given, Content) else Content.model(str(given)))
