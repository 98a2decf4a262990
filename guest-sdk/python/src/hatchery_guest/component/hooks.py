"""Implements ``guest-callbacks`` and ``guest-plugins``."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from componentize_py_types import Err
from wit_world.imports import types as wit

from ..content import Content, LlmResponse
from ..context import CallbackContext
from ..errors import Error
from ..export import EXPORTS
from ..schema import dump
from . import convert, specs
from .calls import HOST, find, to_wit_error


class _Hooks:
    """The hooks that callbacks and plugins share.

    Values are compared as the contract has them: in Python ``1``, ``1.0`` and ``True`` are equal.
    """

    async def _call(self, name: str, hook: str, to_answer: Callable[[Any], Any], *values: Any) -> Any:
        """Calls the code of a hook, and converts its result by ``to_answer``."""
        raise NotImplementedError

    async def _revise(
        self, name: str, hook: str, from_wit: Callable[[Any], Any], to_wit: Callable[[Any], Any], value: Any
    ) -> Any:
        """Calls the code of a hook that may return another value, or change the one that it gets.

        Returns ``None`` if it does neither.
        """
        revised = from_wit(value)

        def to_answer(replacement: Any) -> Any:
            answer = to_wit(revised if replacement is None else replacement)
            return None if replacement is None and answer == to_wit(from_wit(value)) else answer

        return await self._call(name, hook, to_answer, revised)

    async def before_agent(self, name: str) -> Any:
        return await self._call(name, "before_agent", _content)

    async def after_agent(self, name: str) -> Any:
        return await self._call(name, "after_agent", _content)

    async def on_agent_error(self, name: str, failure: wit.Error) -> Any:
        return await self._call(name, "on_agent_error", _content, _error(failure))

    async def before_model(self, name: str, request: wit.LlmRequest) -> Any:
        revised = convert.request_from_wit(request)

        def to_action(response: LlmResponse | None) -> Any:
            if response is not None:
                return wit.ModelAction_Respond(convert.response_to_wit(response))
            sent = convert.request_to_wit(revised)
            if sent == convert.request_to_wit(convert.request_from_wit(request)):
                return wit.ModelAction_Proceed()
            return wit.ModelAction_Revise(sent)

        return await self._call(name, "before_model", to_action, revised)

    async def after_model(self, name: str, response: wit.LlmResponse) -> Any:
        return await self._revise(name, "after_model", convert.response_from_wit, convert.response_to_wit, response)

    async def on_model_error(self, name: str, request: wit.LlmRequest, failure: wit.Error) -> Any:
        return await self._call(name, "on_model_error", _response, convert.request_from_wit(request), _error(failure))

    async def before_tool(self, name: str, call: wit.ToolCall) -> Any:
        revised = convert.call_from_wit(call)

        def to_action(response: Any) -> Any:
            if response is not None:
                return wit.ToolAction_Respond(convert.to_json(dump(response)))
            args = convert.to_json(revised.args)
            unchanged = args == convert.to_json(json.loads(call.args))
            return wit.ToolAction_Proceed() if unchanged else wit.ToolAction_Revise(args)

        return await self._call(name, "before_tool", to_action, revised)

    async def after_tool(self, name: str, call: wit.ToolCall, response: str) -> Any:
        revised = json.loads(response)

        def to_answer(replacement: Any) -> Any:
            result = convert.to_json(revised if replacement is None else dump(replacement))
            if replacement is None and result == convert.to_json(json.loads(response)):
                return None
            return result

        return await self._call(name, "after_tool", to_answer, convert.call_from_wit(call), revised)

    async def on_tool_error(self, name: str, call: wit.ToolCall, failure: wit.Error) -> Any:
        return await self._call(name, "on_tool_error", _json, convert.call_from_wit(call), _error(failure))


class Callbacks(_Hooks):
    """Implements ``guest-callbacks``."""

    def describe(self) -> list[Any]:
        return [specs.callback(callback) for callback in EXPORTS.callbacks.values()]

    async def _call(self, name: str, hook: str, to_answer: Callable[[Any], Any], *values: Any) -> Any:
        callback = find(EXPORTS.callbacks, "callback", name)
        try:
            return to_answer(await callback.call(CallbackContext(HOST), *values))
        except Exception as error:
            raise Err(to_wit_error(error)) from None


class Plugins(_Hooks):
    """Implements ``guest-plugins``."""

    def describe(self) -> list[Any]:
        return [specs.plugin(plugin) for plugin in EXPORTS.plugins.values()]

    async def _call(self, name: str, hook: str, to_answer: Callable[[Any], Any], *values: Any) -> Any:
        plugin = find(EXPORTS.plugins, "plugin", name)
        try:
            return to_answer(await plugin.call(hook, CallbackContext(HOST), *values))
        except Exception as error:
            raise Err(to_wit_error(error)) from None

    async def on_user_message(self, name: str, message: wit.Content) -> Any:
        def to_wit(content: Content | str) -> Any:
            return convert.content_to_wit(Content.user(content) if isinstance(content, str) else content)

        return await self._revise(name, "on_user_message", convert.content_from_wit, to_wit, message)

    async def before_run(self, name: str) -> Any:
        return await self._call(name, "before_run", _content)

    async def on_event(self, name: str, event: wit.Event) -> Any:
        return await self._revise(name, "on_event", convert.event_from_wit, convert.event_to_wit, event)

    async def after_run(self, name: str) -> None:
        await self._call(name, "after_run", _ignore)

    async def on_run_error(self, name: str, failure: wit.Error) -> None:
        await self._call(name, "on_run_error", _ignore, _error(failure))

    async def close(self, name: str) -> None:
        await self._call(name, "close", _ignore)


def _error(failure: wit.Error) -> Error:
    return Error(failure.message, failure.code)


def _content(output: Content | str | None) -> Any:
    if output is None:
        return None
    return convert.content_to_wit(Content.model(output) if isinstance(output, str) else output)


def _response(response: LlmResponse | None) -> Any:
    return None if response is None else convert.response_to_wit(response)


def _json(value: Any) -> str | None:
    return None if value is None else convert.to_json(dump(value))


def _ignore(_: Any) -> None:
    return None
