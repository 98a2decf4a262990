"""Timers for the event loop of componentize-py, which has none: ``asyncio.sleep`` and timeouts wait by an import of the component."""

from __future__ import annotations

import asyncio
import contextvars
import time
from collections.abc import Callable
from typing import Any

import componentize_py_async_support as async_support
import componentize_py_runtime
from wit_world.imports import clock


class _CallFuture(asyncio.Future):
    """The result of a host call. The host returns it even if the task that waits for it was cancelled."""

    def set_result(self, result: Any) -> None:
        if not self.cancelled():
            super().set_result(result)


def install() -> None:
    """Adds timers to the event loop."""
    loop: Any = async_support._loop
    run_ready = loop.poll

    async def fire(timer: asyncio.TimerHandle, callback: Callable[..., object], args: Any, context: contextvars.Context) -> None:
        await clock.sleep(max(int((timer.when() - loop.time()) * 1e9), 0))
        if not timer.cancelled():
            # Not called immediately: this task runs in the same context.
            loop.call_soon(callback, *args, context=context)

    def call_at(when: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None) -> asyncio.TimerHandle:
        context = context or contextvars.copy_context()
        timer = asyncio.TimerHandle(when, callback, args, loop, context)
        loop.create_task(fire(timer, callback, args, context), context=context)
        return timer

    def call_later(delay: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None) -> asyncio.TimerHandle:
        return call_at(loop.time() + delay, callback, *args, context=context)

    def poll(call: Any) -> None:
        run_ready(call)
        if call.pending_count == 0:
            # Timers and calls that are not awaited do not delay the end of the call.
            for waitable in call.futures:
                componentize_py_runtime.waitable_join(waitable, 0)
            call.futures.clear()

    loop.time = time.monotonic
    loop.call_at = call_at
    loop.call_later = call_later
    loop.create_future = lambda: _CallFuture(loop=loop)
    loop.poll = poll
    # A cancelled timer fires without effect.
    loop._timer_handle_cancelled = lambda _: None
