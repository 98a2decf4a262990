"""Builds a component from a program: ``python -m hatchery_guest.build --module app --wit DIR --work DIR --out FILE PATH…``.

The program is first imported natively, to find its exports. Then a WIT world with these exports is generated, and componentize-py runs
the program in WebAssembly and takes a snapshot.

``--develop`` writes the modules of the program for the interpreter of development components, and the names of the modules that this must
contain. ``--interpreter FILE`` creates that interpreter, with the modules that a file names.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import traceback
from collections.abc import Iterable
from pathlib import Path

from .development import STANDARD_MODULES, ImportedModules, modules_of
from .export import EXPORTS, KINDS, Exports
from .trace import shorten_paths

INTERFACES = {
    "agents": ("guest-agents", "GuestAgents", "Agents"),
    "tools": ("guest-tools", "GuestTools", "Tools"),
    "toolsets": ("guest-toolsets", "GuestToolsets", "Toolsets"),
    "callbacks": ("guest-callbacks", "GuestCallbacks", "Callbacks"),
    "plugins": ("guest-plugins", "GuestPlugins", "Plugins"),
    "code_executors": ("guest-code-executors", "GuestCodeExecutors", "CodeExecutors"),
    "summarizers": ("guest-summarizers", "GuestSummarizers", "Summarizers"),
    "examples": ("guest-examples", "GuestExamples", "Examples"),
    "models": ("guest-models", "GuestModels", "Models"),
    "live_models": ("guest-live-models", "GuestLiveModels", "LiveModels"),
}
"""The interface of each kind of exports, the class that is generated for it, and the class that implements it."""

SDK_FOLDER = Path(__file__).parent
"""The folder of this package."""

GUEST_VERSION = (3, 14)
"""The version of Python in components."""

SOCKET_PACKAGES = {"aiohttp", "httpx", "requests", "urllib3"}
"""Common packages for HTTP that can be installed, but do not work in components."""

NEWER_SYNTAX = re.compile(r"\s*(?:type\s+\w+|class\s+\w+\s*\[|(?:async\s+)?def\s+\w+\s*\[|except\s+[\w.]+\s*,)")
"""The beginning of a line with syntax that is newer than Python 3.11: type aliases, type parameters, ``except`` without parentheses."""

IMPORT_TIMEOUT = 60
"""Seconds that importing the program on this machine may take."""

NEEDS_SNAPSHOT = 3
"""The exit code of ``--develop`` for a program that an interpreter cannot run."""

PROGRAM_WIT = "package hatchery:development@0.1.0;\n\ninterface program {\n  read: func() -> list<u8>;\n}\n"
"""Additional imports of a development component."""


def main() -> int:
    """Runs the command. Returns 1 after an error in the program, which is reported on stderr."""
    arguments = argparse.ArgumentParser(prog="python -m hatchery_guest.build", description=__doc__)
    arguments.add_argument("--module", help="the program's module")
    arguments.add_argument("--develop", action="store_true", help="write the program for an interpreter")
    arguments.add_argument("--interpreter", type=Path, metavar="FILE", help="create an interpreter with the modules that are listed in this file")
    arguments.add_argument("--wit", type=Path, help="the folder of the contract")
    arguments.add_argument("--work", required=True, type=Path, help="a folder for generated files")
    arguments.add_argument("--out", required=True, type=Path, help="the component, or the program")
    arguments.add_argument("paths", nargs="*", help="folders of modules")
    args = arguments.parse_args()
    if args.interpreter:
        generate_interpreter(json.loads(args.interpreter.read_text()), args.wit, args.work)
        return componentize(args.work, args.paths, args.out)
    if args.develop:
        return develop(args.module, args.paths, args.work, args.out)
    try:
        exports = import_program(args.module, args.paths)
    except NewerSyntaxError:
        # The exports are not known here.
        kinds = list(KINDS)
    else:
        if exports is None:
            return 1
        kinds = exports.kinds()
    generate(kinds, args.module, args.wit, args.work)
    return componentize(args.work, args.paths, args.out)


def componentize(work: Path, paths: list[str], out: Path) -> int:
    """Runs the entry module in WebAssembly and takes a snapshot. Returns the exit code."""
    command: list[str | Path] = [Path(sys.executable).with_name("componentize-py"), "-q", "-d", work / "wit", "-w", "app", "componentize"]
    sdk = str(Path(__file__).parent.parent)
    for path in [str(work), sdk, *paths]:
        command += ["-p", path]
    result = subprocess.run([*command, "-o", out, "hatchery_entry"], check=False, stderr=subprocess.PIPE, text=True)
    if result.returncode == 0:
        print(result.stderr, end="", file=sys.stderr)
    else:
        print(f"{shorten_error(result.stderr)}\nerror: the program cannot be run in WebAssembly", file=sys.stderr)
    return result.returncode


def shorten_error(stderr: str) -> str:
    """Returns the traceback of the program in what componentize-py writes, which repeats it and adds its own."""
    message = stderr.rpartition("AssertionError: ")[2].partition("\n\nCaused by:")[0]
    return shorten_paths(re.sub(r'  File "/\d+/hatchery_entry\.py".*\n    .*\n', "", message)).strip()


def develop(module: str, paths: list[str], work: Path, out: Path) -> int:
    """Checks the program, and writes it for an interpreter. Returns the exit code."""
    packages = str(work / "packages")
    own = [path for path in paths if path != packages]
    try:
        with ImportedModules(own) as imported:
            exports = import_program(module, paths)
    except NewerSyntaxError:
        return NEEDS_SNAPSHOT
    if exports is None:
        return 1
    out.write_text(json.dumps({"main": module, "modules": modules_of(own)}))
    (work / "imports.json").write_text(json.dumps(sorted(imported.names)))
    return 0


class NewerSyntaxError(Exception):
    """The program has syntax that the Python in components knows, but not the one that builds."""


def is_newer_syntax(error: SyntaxError) -> bool:
    """Returns true for an error in a line that the Python in components may understand."""
    return sys.version_info < GUEST_VERSION and bool(NEWER_SYNTAX.match(error.text or "") or (error.msg or "").startswith("f-string"))


def explain_missing(package: str) -> str:
    """Returns why a package cannot be imported, and what to do."""
    if package.split(".")[0] in SOCKET_PACKAGES:
        return "which needs sockets, and components have none; send HTTP requests with `hatchery_guest.http`"
    return "which is not installed; add it to requirements.txt beside pyproject.toml"


def import_program(module: str, paths: list[str]) -> Exports | None:
    """Imports a program and returns its exports. ``None``, with a message on stderr, if this fails or there are none.

    :raises NewerSyntaxError: if only the Python in components can import it.
    """
    sys.dont_write_bytecode = True
    original_paths = list(sys.path)
    sys.path[:0] = paths
    deadline = threading.Timer(IMPORT_TIMEOUT, give_up, [module, paths, threading.get_ident()])
    deadline.daemon = True
    deadline.start()
    try:
        importlib.import_module(module)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if missing == module:
            print(f"error: there is no module `{module}`; set the module in pyproject.toml, in [tool.hatchery]: module = \"…\"", file=sys.stderr)
        else:
            print(f"error: `{module}` imports `{missing}`, {explain_missing(missing)}", file=sys.stderr)
        return None
    except (Exception, SystemExit) as error:
        if isinstance(error, SyntaxError) and is_newer_syntax(error):
            raise NewerSyntaxError from error
        print(f"{format_import_error(error, paths)}error: `{module}` cannot be imported", file=sys.stderr)
        return None
    finally:
        deadline.cancel()
        # Later imports of this program must not find modules of the project.
        sys.path[:] = original_paths
    if not EXPORTS.kinds():
        print(f"error: `{module}` exports nothing; end it with `export(…)` of its agents, tools and callbacks", file=sys.stderr)
        return None
    try:
        EXPORTS.check_references()
    except TypeError as error:
        print(f"error: {error}", file=sys.stderr)
        return None
    return EXPORTS


def give_up(module: str, paths: list[str], thread: int) -> None:
    """Ends this process, and says where a thread is that has not imported a module in time."""
    frames = traceback.extract_stack(sys._current_frames()[thread])
    own = [frame for frame in frames if any(Path(frame.filename).is_relative_to(path) for path in paths)]
    place = f" at {_relative_name(own[-1].filename, paths)}:{own[-1].lineno}" if own else ""
    print(
        f"error: importing `{module}` has not ended after {IMPORT_TIMEOUT} s{place}; look for a loop or a wait at the top level of a module",
        file=sys.stderr,
        flush=True,
    )
    os._exit(1)


def _relative_name(file: str, paths: list[str]) -> str:
    return next(str(Path(file).relative_to(path)) for path in paths if Path(file).is_relative_to(path))


def format_import_error(error: BaseException, paths: list[str]) -> str:
    """Formats an exception from its first frame in the program on, without the frames of the SDK, and with paths relative to the project."""
    trace = error.__traceback__
    while trace and not any(Path(trace.tb_frame.f_code.co_filename).is_relative_to(path) for path in paths):
        trace = trace.tb_next
    formatted = traceback.TracebackException(type(error), error, trace)
    formatted.stack[:] = [frame for frame in formatted.stack if not Path(frame.filename).is_relative_to(SDK_FOLDER)]
    text = "".join(formatted.format())
    for path in paths:
        text = text.replace(f'File "{path}/', 'File "')
    return text


def generate(kinds: list[str], module: str, contract: Path, work: Path) -> None:
    """Writes the WIT world and the entry module."""
    write_world(kinds, contract, work)
    # The first imports, which are the program's, decide which module has a name.
    lines = [f"import {module}", *_imports(STANDARD_MODULES)]
    lines += ["import wit_world.exports", "from hatchery_guest.component import exports"]
    # The generated classes define the signatures, the SDK's classes implement them.
    for _, name, base in [INTERFACES[kind] for kind in kinds]:
        lines += [f"\n\nclass {name}(exports.{base}, wit_world.exports.{name}):\n    pass"]
    (work / "hatchery_entry.py").write_text("\n".join(lines) + "\n")


def generate_interpreter(modules: list[str], contract: Path, work: Path) -> None:
    """Writes the WIT world and the entry module of an interpreter that contains some modules."""
    write_world(list(KINDS), contract, work, "  import hatchery:development/program@0.1.0;\n")
    package = work / "wit" / "deps" / "development"
    package.mkdir(parents=True, exist_ok=True)
    (package / "program.wit").write_text(PROGRAM_WIT)
    lines = _imports([*STANDARD_MODULES, *modules])
    lines += ["import wit_world.exports", "from hatchery_guest.component import exports, program"]
    for _, name, base in INTERFACES.values():
        lines += [f"\n\nclass {name}(program.load_first(exports.{base}), wit_world.exports.{name}):\n    pass"]
    (work / "hatchery_entry.py").write_text("\n".join(lines) + "\n")


def _imports(modules: Iterable[str]) -> list[str]:
    """Returns statements that import modules, as far as they exist in WebAssembly."""
    return [f"try:\n    import {module}\nexcept Exception:\n    pass" for module in modules]


def write_world(kinds: list[str], contract: Path, work: Path, more_imports: str = "") -> None:
    """Writes the WIT world of a component with these kinds of exports."""
    package = work / "wit" / "deps" / "hatchery"
    shutil.rmtree(work / "wit", ignore_errors=True)
    package.mkdir(parents=True)
    for file in contract.glob("*.wit"):
        shutil.copy(file, package)
    version = version_of(contract)
    world_exports = "".join(f"  export hatchery:agent/{INTERFACES[kind][0]}@{version};\n" for kind in kinds)
    # `urllib` blocks.
    imports = f"  include hatchery:agent/imports@{version};\n  import hatchery:agent/sync-http@{version};\n{more_imports}"
    (work / "wit" / "app.wit").write_text(f"package hatchery:app;\n\nworld app {{\n{imports}{world_exports}}}\n")


def version_of(contract: Path) -> str:
    """Returns the version of the contract's package."""
    for line in (contract / "types.wit").read_text().splitlines():
        if line.startswith("package hatchery:agent@"):
            return line.removeprefix("package hatchery:agent@").rstrip(";")
    raise ValueError(f"{contract / 'types.wit'} has no version")


if __name__ == "__main__":
    sys.exit(main())
