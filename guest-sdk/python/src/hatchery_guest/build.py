"""Builds a component from a program: ``python -m hatchery_guest.build --module app --wit DIR --work DIR --out FILE PATH…``.

The program is first imported natively, to find its exports. Then a WIT world with these exports is generated, and componentize-py runs
the program in WebAssembly and takes a snapshot.
"""

from __future__ import annotations

import argparse
import importlib
import shutil
import subprocess
import sys
import traceback
from pathlib import Path

from .export import EXPORTS, Exports

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
}
"""The interface of each kind of exports, the class that is generated for it, and the class that implements it."""


def main() -> int:
    """Runs the command. Returns 1 after an error in the program, which is reported on stderr."""
    arguments = argparse.ArgumentParser(prog="python -m hatchery_guest.build", description=__doc__)
    arguments.add_argument("--module", required=True, help="the program's module")
    arguments.add_argument("--wit", required=True, type=Path, help="the folder of the contract")
    arguments.add_argument("--work", required=True, type=Path, help="a folder for generated files")
    arguments.add_argument("--out", required=True, type=Path, help="the component")
    arguments.add_argument("paths", nargs="+", help="folders of modules")
    args = arguments.parse_args()
    exports = import_program(args.module, args.paths)
    if exports is None:
        return 1
    generate(exports, args.module, args.wit, args.work)
    command = [Path(sys.executable).with_name("componentize-py"), "-q", "-d", args.work / "wit", "-w", "app", "componentize"]
    sdk = str(Path(__file__).parent.parent)
    for path in [str(args.work), sdk, *args.paths]:
        command += ["-p", path]
    return subprocess.run([*command, "-o", args.out, "hatchery_entry"], check=False).returncode


def import_program(module: str, paths: list[str]) -> Exports | None:
    """Imports a program and returns its exports. ``None``, with a message on stderr, if this fails or there are none."""
    sys.dont_write_bytecode = True
    original_paths = list(sys.path)
    sys.path[:0] = paths
    try:
        importlib.import_module(module)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if missing == module:
            print(f"error: there is no module `{module}`; set the module in pyproject.toml, in [tool.hatchery]: module = \"…\"", file=sys.stderr)
        else:
            print(
                f"error: `{module}` imports `{missing}`, which is not installed; add it to requirements.txt beside pyproject.toml",
                file=sys.stderr,
            )
        return None
    except (Exception, SystemExit):
        traceback.print_exc()
        print(f"error: `{module}` cannot be imported", file=sys.stderr)
        return None
    finally:
        # Later imports of this program must not find modules of the project.
        sys.path[:] = original_paths
    if not EXPORTS.kinds():
        print(f"error: `{module}` exports nothing; end it with `export(…)` of its agents, tools and callbacks", file=sys.stderr)
        return None
    return EXPORTS


def generate(exports: Exports, module: str, contract: Path, work: Path) -> None:
    """Writes the WIT world and the entry module."""
    package = work / "wit" / "deps" / "hatchery"
    package.mkdir(parents=True, exist_ok=True)
    for file in contract.glob("*.wit"):
        shutil.copy(file, package)
    version = version_of(contract)
    interfaces = [INTERFACES[kind] for kind in exports.kinds()]
    world_exports = "".join(f"  export hatchery:agent/{interface}@{version};\n" for interface, _, _ in interfaces)
    # `urllib` blocks.
    imports = f"  include hatchery:agent/imports@{version};\n  import hatchery:agent/sync-http@{version};\n"
    world = f"package hatchery:app;\n\nworld app {{\n{imports}{world_exports}}}\n"
    (work / "wit" / "app.wit").write_text(world)
    lines = [f"import {module}", "import random", "import wit_world.exports", "from hatchery_guest.component import exports"]
    # The generated classes define the signatures, those of the SDK implement them.
    lines += [f"\n\nclass {name}(exports.{base}, wit_world.exports.{name}):\n    pass" for _, name, base in interfaces]
    (work / "hatchery_entry.py").write_text("\n".join(lines) + "\n")


def version_of(contract: Path) -> str:
    """Returns the version of the contract's package."""
    for line in (contract / "types.wit").read_text().splitlines():
        if line.startswith("package hatchery:agent@"):
            return line.removeprefix("package hatchery:agent@").rstrip(";")
    raise ValueError(f"{contract / 'types.wit'} has no version")


if __name__ == "__main__":
    sys.exit(main())
