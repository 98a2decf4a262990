"""``@callback``: turns a function into a callback."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field
from typing import Any, Callable, Generic, Literal, get_args

from . import schema
from .content import Content, Event, LlmResponse
from .context import CallbackContext
from .signature import P, R, Signature, call_handler, handler_signature

Hook = Literal[
    "before_agent", "after_agent", "on_agent_error",
    "before_model", "after_model", "on_model_error",
    "before_tool", "after_tool", "on_tool_error",
]  # fmt: skip
"""The points of a run at which a callback can be called."""

HOOKS: tuple[Hook, ...] = get_args(Hook)


@dataclass
class Callback(Generic[P, R]):
    """A function that the host calls at a point of a run. Calling it calls the function."""

    name: str
    hook: Hook
    function: Callable[P, R]
    signature: Signature
    __wrapped__: Callable[..., Any] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.__wrapped__ = self.function
        self.__doc__ = self.function.__doc__

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)

    async def call(self, cx: CallbackContext, *values: Any) -> Any:
        """Calls it as a host does. The function may take fewer arguments than the hook has.

        Raises ``TypeError`` if the hook does not have results of the returned type.
        """
        result = call_handler(self.function, self.signature, cx, *values)
        return check_result(f"callback `{self.name}`", self.hook, await result if inspect.isawaitable(result) else result)


ARGUMENT_COUNT: dict[str, int] = {
    "before_agent": 0, "after_agent": 0, "on_agent_error": 1, "before_model": 1, "after_model": 1, "on_model_error": 2,
    "before_tool": 1, "after_tool": 2, "on_tool_error": 2,
}  # fmt: skip
"""The number of values that a hook gets."""

_RESULTS: dict[str, tuple[tuple[type, ...], str]] = {
    **dict.fromkeys(
        ("before_agent", "after_agent", "on_agent_error", "before_run", "on_user_message"), ((str, Content), "a string, a Content or None")
    ),
    **dict.fromkeys(("before_model", "after_model", "on_model_error"), ((LlmResponse,), "an LlmResponse or None")),
    **dict.fromkeys(("before_tool", "after_tool", "on_tool_error"), ((dict,), "a dict or None")),
    "on_event": ((Event,), "an Event or None"),
}
"""The types of the results of hooks, with their names for messages. The results of other hooks are ignored."""


def check_result(item: str, hook: str, result: Any) -> Any:
    """Returns the result of a hook.

    Raises ``TypeError`` if the hook does not have results of this type. ``item`` names the callback or plugin in the error.
    """
    types, expected = _RESULTS.get(hook, ((object,), ""))
    # A dataclass is an object in JSON, too.
    if result is None or isinstance(schema.dump(result) if dict in types else result, types):
        return result
    raise TypeError(f"{item}: `{hook}` returns {expected}, not `{type(result).__name__}`")


def callback(hook: Hook) -> Callable[[Callable[P, R]], Callback[P, R]]:
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

    def decorate(function: Callable[..., Any]) -> Any:
        described = handler_signature("callback", function, ARGUMENT_COUNT[hook])
        return Callback(function.__name__, hook, function, described)

    return decorate
