"""``@callback``: turns a function into a callback."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field
from typing import Any, Callable, Literal, get_args

from .context import CallbackContext
from .signature import Signature, call_handler, handler_signature

Hook = Literal[
    "before_agent", "after_agent", "on_agent_error",
    "before_model", "after_model", "on_model_error",
    "before_tool", "after_tool", "on_tool_error",
]  # fmt: skip
"""The points of a run at which a callback can be called."""

HOOKS: tuple[Hook, ...] = get_args(Hook)


@dataclass
class Callback:
    """A function that the host calls at a point of a run. Calling it calls the function."""

    name: str
    hook: Hook
    function: Callable[..., Any]
    signature: Signature
    __wrapped__: Callable[..., Any] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.__wrapped__ = self.function
        self.__doc__ = self.function.__doc__

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)

    async def call(self, cx: CallbackContext, *values: Any) -> Any:
        """Calls it as a host does. The function may take fewer arguments than the hook has."""
        result = call_handler(self.function, self.signature, cx, *values)
        return await result if inspect.isawaitable(result) else result


ARGUMENT_COUNT: dict[str, int] = {
    "before_agent": 0, "after_agent": 0, "on_agent_error": 1, "before_model": 1, "after_model": 1, "on_model_error": 2,
    "before_tool": 1, "after_tool": 2, "on_tool_error": 2,
}  # fmt: skip
"""The number of values that a hook gets."""


def callback(hook: Hook) -> Callable[[Callable[..., Any]], Callback]:
    """Turns a function, async or not, into a callback. A parameter annotated with ``CallbackContext`` gets the context.

    ==================  ==================  ==========================================================================
    hook                arguments           result
    ==================  ==================  ==========================================================================
    ``before_agent``                        a string or ``Content``: the answer; the agent does not run
    ``after_agent``                         a string or ``Content``: an additional event
    ``on_agent_error``  error               a string or ``Content``: the answer instead of the failure
    ``before_model``    request             an ``LlmResponse``: replaces the call; changes of the request apply
    ``after_model``     response            an ``LlmResponse``: replaces it; changes of the response apply
    ``on_model_error``  request, error      an ``LlmResponse``: replaces the failure
    ``before_tool``     call                a dict: replaces the call; changes of ``call.args`` apply
    ``after_tool``      call, response      a dict: replaces it; changes of the response apply
    ``on_tool_error``   call, error         a dict: replaces the failure
    ==================  ==================  ==========================================================================

    ``None`` changes nothing. An exception ends the run.
    """
    if hook not in HOOKS:
        raise ValueError(f"unknown hook `{hook}`; use one of {', '.join(HOOKS)}")

    def decorate(function: Callable[..., Any]) -> Callback:
        described = handler_signature("callback", function, ARGUMENT_COUNT[hook])
        return Callback(function.__name__, hook, function, described)

    return decorate
