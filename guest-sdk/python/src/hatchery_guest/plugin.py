"""``@plugin``: turns a class into a plugin, whose methods are hooks into every run of every app."""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass, field
from typing import Any, Callable, overload

from .callback import ARGUMENT_COUNT, HOOKS, check_result
from .context import CallbackContext
from .signature import Signature, call_handler, handler_signature

RUN_HOOKS: dict[str, int] = {
    "on_user_message": 1, "before_run": 0, "on_event": 1, "after_run": 0, "on_run_error": 1, "close": 0,
}  # fmt: skip
"""The hooks of runs, with the number of values that they get."""

PLUGIN_HOOKS = (*RUN_HOOKS, *HOOKS)


@dataclass
class Plugin:
    """Hooks into every run. The host only calls those that the class has."""

    name: str
    hooks: dict[str, tuple[Callable[..., Any], Signature]] = field(repr=False)

    async def call(self, hook: str, cx: CallbackContext, *values: Any) -> Any:
        """Calls a hook as a host does. The method may take fewer arguments than the hook has.

        Raises ``TypeError`` if the hook does not have results of the returned type.
        """
        function, signature = self.hooks[hook]
        result = call_handler(function, signature, cx, *values)
        return check_result(f"plugin `{self.name}`", hook, await result if inspect.isawaitable(result) else result)


@overload
def plugin(cls: type) -> Plugin: ...
@overload
def plugin(*, name: str | None = None) -> Callable[[type], Plugin]: ...
def plugin(cls: Any = None, *, name: str | None = None) -> Any:
    """Turns a class into a plugin. Its public methods, async or not, are hooks: the hooks of callbacks, and

    ===================  =========  ==========================================================================
    hook                 arguments  result
    ===================  =========  ==========================================================================
    ``on_user_message``  message    a string or ``Content``: replaces the message
    ``before_run``                  a string or ``Content``: the answer of the run; no agent runs
    ``on_event``         event      an ``Event``: replaces it; changes of the event apply
    ``after_run``                   ignored; runs after a run that did not fail
    ``on_run_error``     error      ignored; runs after a run that failed
    ``close``                       ignored; releases resources when the host stops or the plugin is replaced
    ===================  =========  ==========================================================================

    The name is the class's in snake case. The plugin has to keep its data in the session's state: an instance of a component does
    not live longer than a call.
    """

    def decorate(cls: type) -> Plugin:
        if not inspect.isclass(cls):
            raise TypeError(f"{cls!r} is not a class; a plugin is a class whose methods are hooks")
        target, hooks = cls(), {}
        for hook, function in inspect.getmembers(target, callable):
            if hook.startswith("_"):
                continue
            if hook not in PLUGIN_HOOKS:
                raise TypeError(f"plugin `{cls.__name__}`: unknown hook `{hook}`; use one of {', '.join(PLUGIN_HOOKS)}, or begin the name with `_`")
            count = RUN_HOOKS[hook] if hook in RUN_HOOKS else ARGUMENT_COUNT[hook]
            hooks[hook] = (function, handler_signature("hook", function, count))
        if not hooks:
            raise TypeError(f"plugin `{cls.__name__}` has no hooks; add methods such as `before_run`")
        return Plugin(name or _snake_case(cls.__name__), hooks)

    return decorate if cls is None else decorate(cls)


def _snake_case(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()
