"""Writes a root file system with this Python, and nothing else, to the standard output: a tar archive."""

import os
import subprocess
import sys
import sysconfig
import tarfile

OMITTED = {"__pycache__", "dist-packages", "ensurepip", "idlelib", "lib2to3", "site-packages", "test", "tkinter", "turtledemo"}


def is_kept(member):
    name = os.path.basename(member.name)
    return None if name in OMITTED or name.startswith("config-") else member


def entry(name, type, target=""):
    member = tarfile.TarInfo(name)
    member.type, member.linkname, member.mode = type, target, 0o755
    return member


python = os.path.realpath(sys.executable)
library = os.path.realpath(sysconfig.get_path("stdlib"))
modules = os.path.join(library, "lib-dynload")
binaries = [python] + [os.path.join(modules, name) for name in os.listdir(modules)]
linked = subprocess.run(["ldd", *binaries], capture_output=True, text=True).stdout
libraries = {word for line in linked.splitlines() for word in line.split() if word.startswith("/") and not word.endswith(":")}
with tarfile.open(fileobj=sys.stdout.buffer, mode="w|", dereference=True) as archive:
    for folder in ("dev", "etc", "proc", "run", "sys", "tmp", "var", "var/tmp"):
        archive.addfile(entry(folder, tarfile.DIRTYPE))
    for path in sorted({python, *libraries}):
        archive.add(path)
    archive.add(library, filter=is_kept)
    if python != "/usr/bin/python3":
        archive.addfile(entry("usr/bin/python3", tarfile.SYMTYPE, python))
