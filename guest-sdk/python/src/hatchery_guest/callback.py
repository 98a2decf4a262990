"""``@callback``: what makes a callback of a function."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field
from typing import Any, Callable, Literal, get_args

from .context import CallbackContext
from .signature import Signature, signature

Point = Literal[
    "before_agent", "after_agent", "on_agent_error",
    "before_model", "after_model", "on_model_error",
    "before_tool", "after_tool", "on_tool_error",
]  # fmt: skip
"""The moments of a run at which a callback can be called."""

POINTS: tuple[Point, ...] = get_args(Point)


@dataclass
class Callback:
    """A function that the host calls at a moment of a run. Calling it calls the function."""

    name: str
    point: Point
    function: Callable[..., Any]
    signature: Signature
    __wrapped__: Callable[..., Any] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.__wrapped__ = self.function
        self.__doc__ = self.function.__doc__

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)

    async def call(self, cx: CallbackContext, *given: Any) -> Any:
        """Calls it as a host does; a function may take fewer things than there are."""
        names = [parameter.name for parameter in self.signature.parameters]
        named = dict(zip(names, given))
        if self.signature.context:
            named[self.signature.context] = cx
        result = self.function(**named)
        return await result if inspect.isawaitable(result) else result


_GIVEN: dict[Point, int] = {
    "before_agent": 0, "after_agent": 0, "on_agent_error": 1, "before_model": 1, "after_model": 1, "on_model_error": 2,
    "before_tool": 1, "after_tool": 2, "on_tool_error": 2,
}  # fmt: skip


def callback(point: Point) -> Callable[[Callable[..., Any]], Callback]:
    """Makes a callback of a function, async or not. A parameter annotated with ``CallbackContext`` gets the context.

    ==================  ==================  ==========================================================================
    point               is given            may give
    ==================  ==================  ==========================================================================
    ``before_agent``                        a text or ``Content``: the agent's answer; it does not run
    ``after_agent``                         a text or ``Content``: added to what the agent said
    ``on_agent_error``  error               a text or ``Content``: the agent's answer; the run goes on
    ``before_model``    request             an ``LlmResponse``: the model's answer; changes of the request are used
    ``after_model``     response            an ``LlmResponse`` instead; changes of the response are used
    ``on_model_error``  request, error      an ``LlmResponse``: takes the place of the failure
    ``before_tool``     call                a dict: the tool's answer; changes of ``call.args`` are used
    ``after_tool``      call, response      a dict instead; changes of the response are used
    ``on_tool_error``   call, error         a dict: takes the place of the failure
    ==================  ==================  ==========================================================================

    ``None`` goes on as if there were no callback. What it raises ends the run.
    """
    if point not in POINTS:
        raise ValueError(f"there is no `{point}`; a callback is for one of {', '.join(POINTS)}")

    def make(function: Callable[..., Any]) -> Callback:
        read = signature(function)
        required = [parameter for parameter in read.parameters if parameter.required]
        if len(required) > _GIVEN[point]:
            name = required[_GIVEN[point]].name
            raise TypeError(f"callback `{function.__name__}` is given nothing for `{name}`; annotate it, if it is the context")
        return Callback(function.__name__, point, function, read)

    return make
