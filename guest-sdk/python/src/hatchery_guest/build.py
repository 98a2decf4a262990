"""Makes a component of a program: ``python -m hatchery_guest.build --module app --wit DIR --work DIR --out FILE PATH…``.

The program is imported natively first, to see what it exports; then a world with just that is written, and componentize-py runs the
program once more, in WebAssembly, and takes a snapshot of it.
"""

from __future__ import annotations

import argparse
import importlib
import shutil
import subprocess
import sys
import traceback
from pathlib import Path

from .offer import OFFER, Offer

EXPORTS = {
    "agents": ("guest-agents", "GuestAgents", "Agents"),
    "tools": ("guest-tools", "GuestTools", "Tools"),
    "callbacks": ("guest-callbacks", "GuestCallbacks", "Callbacks"),
}


def main() -> int:
    """The command. Its exit code is 1 when the program is wrong, and it has said why on stderr."""
    arguments = argparse.ArgumentParser(prog="python -m hatchery_guest.build", description=__doc__)
    arguments.add_argument("--module", required=True, help="the program's module")
    arguments.add_argument("--wit", required=True, type=Path, help="the folder of the contract")
    arguments.add_argument("--work", required=True, type=Path, help="a folder for what is generated")
    arguments.add_argument("--out", required=True, type=Path, help="the component")
    arguments.add_argument("paths", nargs="+", help="where Python looks for modules")
    args = arguments.parse_args()
    offer = look_at(args.module, args.paths)
    if offer is None:
        return 1
    generate(offer, args.module, args.wit, args.work)
    command = [Path(sys.executable).with_name("componentize-py"), "-q", "-d", args.work / "wit", "-w", "app", "componentize"]
    own = str(Path(__file__).parent.parent)
    for path in [str(args.work), own, *args.paths]:
        command += ["-p", path]
    return subprocess.run([*command, "-o", args.out, "hatchery_entry"], check=False).returncode


def look_at(module: str, paths: list[str]) -> Offer | None:
    """What a program exports; nothing when it cannot be imported or exports nothing, which is said."""
    sys.dont_write_bytecode = True
    own_paths = list(sys.path)
    sys.path[:0] = paths
    try:
        importlib.import_module(module)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if missing == module:
            print(f"error: there is no module `{module}`; say which it is in pyproject.toml, below [tool.hatchery]: module = \"…\"", file=sys.stderr)
        else:
            print(
                f"error: `{module}` imports `{missing}`, which is not there; list it in requirements.txt beside pyproject.toml",
                file=sys.stderr,
            )
        return None
    except (Exception, SystemExit):
        traceback.print_exc()
        print(f"error: `{module}` cannot be imported", file=sys.stderr)
        return None
    finally:
        # What this program imports from here on is none of the project's modules, whatever their names.
        sys.path[:] = own_paths
    if not OFFER.kinds():
        print(f"error: `{module}` exports nothing; end it with `export(…)` of its agents, tools and callbacks", file=sys.stderr)
        return None
    return OFFER


def generate(offer: Offer, module: str, contract: Path, work: Path) -> None:
    """Writes the world and the entry module."""
    package = work / "wit" / "deps" / "hatchery"
    package.mkdir(parents=True, exist_ok=True)
    for file in contract.glob("*.wit"):
        shutil.copy(file, package)
    version = version_of(contract)
    kinds = [EXPORTS[kind] for kind in offer.kinds()]
    exports = "".join(f"  export hatchery:agent/{interface}@{version};\n" for interface, _, _ in kinds)
    world = f"package hatchery:app;\n\nworld app {{\n  include hatchery:agent/imports@{version};\n{exports}}}\n"
    (work / "wit" / "app.wit").write_text(world)
    lines = [f"import {module}", "import random", "import wit_world.exports", "from hatchery_guest.component import exports"]
    # The generated classes know how the host's calls begin, ours what they do.
    lines += [f"\n\nclass {name}(exports.{ours}, wit_world.exports.{name}):\n    pass" for _, name, ours in kinds]
    (work / "hatchery_entry.py").write_text("\n".join(lines) + "\n")


def version_of(contract: Path) -> str:
    """The version that the contract's package says."""
    for line in (contract / "types.wit").read_text().splitlines():
        if line.startswith("package hatchery:agent@"):
            return line.removeprefix("package hatchery:agent@").rstrip(";")
    raise ValueError(f"{contract / 'types.wit'} names no version")


if __name__ == "__main__":
    sys.exit(main())
