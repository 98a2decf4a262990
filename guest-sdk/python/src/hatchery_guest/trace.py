"""Tracebacks in terms of the project: without the frames of the SDK, and without the folders of the component."""

from __future__ import annotations

import re
import traceback


def format_traceback(error: BaseException) -> str:
    """Formats an exception with the files and lines of the program."""
    trace = error.__traceback__
    while trace and "/hatchery_guest/" in trace.tb_frame.f_code.co_filename:
        trace = trace.tb_next
    return shorten_paths("".join(traceback.format_exception(type(error), error, trace))).rstrip()


def shorten_paths(text: str) -> str:
    """Removes the folders of a component from a traceback: each folder of modules has a number."""
    return re.sub(r'File "/\d+/', 'File "', text)
