"""Limited process that drops its rights and then runs one program.

``sandbox.py`` runs it as a script with a request on standard input. No module imports it. Before
the program runs, the process

* loads the modules that programs may import, and blocks all other imports,
* empties its environment, and changes from root to nobody,
* limits CPU, memory, files and core dumps (``setrlimit``; hard limits),
* installs a seccomp filter that kills it at any system call except a few: reading and writing open
  descriptors, memory, the clock, its own exit. No file, socket, process, thread, signal or ptrace
  is among them.

An audit hook (PEP 578) describes what a program tried. It is no barrier and need not be one: the
filter is in the kernel. A program can only falsify its own report.
"""

import array
import base64
import binascii
import bisect
import calendar
import collections
import contextlib
import copy
import ctypes
import dataclasses
import datetime
import decimal
import enum
import fractions
import functools
import hashlib
import heapq
import io
import itertools
import json
import math
import operator
import os
import random
import re
import resource
import signal
import statistics
import string
import struct
import sys
import textwrap
import time
import types
import typing
import unicodedata
import zlib
from typing import Any, NoReturn

PROGRAMS_MAY_IMPORT: tuple[types.ModuleType, ...] = (
    array, base64, binascii, bisect, calendar, collections, contextlib, copy, dataclasses, datetime,
    decimal, enum, fractions, functools, hashlib, heapq, io, itertools, json, math, operator, random, re,
    statistics, string, struct, textwrap, time, typing, unicodedata, zlib,
)  # fmt: skip

NOBODY_ID = 65_534
PR_SET_DUMPABLE, PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS, PR_SET_PDEATHSIG = 4, 22, 38, 1
SECCOMP_MODE_FILTER = 2
KILL_PROCESS, REFUSE, ALLOW = 0x8000_0000, 0x0005_0001, 0x7FFF_0000  # REFUSE: errno EPERM
LOAD, EQUAL, RETURN = 0x20, 0x15, 0x06  # BPF_LD|W|ABS, BPF_JMP|JEQ|K, BPF_RET|K

# Per machine: AUDIT_ARCH, then numbers of system calls (asm/unistd_64.h, asm-generic/unistd.h).
ALLOWED = {
    "x86_64": (0xC000_003E, (0, 1, 3, 5, 8, 9, 10, 11, 12, 15, 14, 25, 28, 39, 60, 231, 202, 228, 229, 96,
                             318, 24, 98, 35, 230)),
    "aarch64": (0xC000_00B7, (63, 64, 57, 80, 62, 222, 226, 215, 214, 139, 135, 216, 233, 172, 93, 94, 98,
                              113, 114, 169, 278, 124, 165, 101, 115)),
}  # fmt: skip
# The interpreter makes these calls, and the filter refuses them: ioctl, rt_sigaction, sigaltstack,
# openat. To show a line, a syntax error opens a file that does not exist.
REFUSED = {"x86_64": (16, 13, 131, 257), "aarch64": (29, 134, 132, 56)}
NAME = "<program>"

FORBIDDEN = {
    "open": "files", "os": "the operating system", "shutil": "files", "glob": "files", "pathlib": "files",
    "tempfile": "files", "socket": "the network", "urllib": "the network", "ssl": "the network",
    "http": "the network", "ftplib": "the network", "smtplib": "the network", "subprocess": "processes",
    "pty": "processes", "fcntl": "files", "mmap": "files", "sqlite3": "files", "ctypes": "native code",
    "resource": "limits", "signal": "signals", "syslog": "the operating system", "_thread": "threads", "threading": "threads", "posix": "the operating system",
    "_posixsubprocess": "processes", "faulthandler": "native code",
}  # fmt: skip
"""First word of an audit event → resource that the program tried to use."""
OUTPUT = 65_536
"""Maximum characters that a program may print."""


class OutputLimitError(BaseException):
    """The program printed too much.

    A program's own ``except Exception`` does not catch it.
    """


class Printed(io.StringIO):
    """Standard output of the program, limited."""

    def write(self, text: str) -> int:
        """Store printed text; stop the program at the limit."""
        if self.tell() + len(text) > OUTPUT:
            raise OutputLimitError
        return super().write(text)


def say(**report: object) -> NoReturn:
    """Write the report and exit without running any code of the program."""
    data = json.dumps(report).encode()
    while data:
        data = data[os.write(1, data) :]
    os._exit(0)


def limit(request: dict[str, Any]) -> None:
    """Drop every right that the program must not have, except system calls."""
    os.environ.clear()
    limits = {
        resource.RLIMIT_CPU: request["cpu_s"],
        resource.RLIMIT_AS: request["memory_bytes"],
        resource.RLIMIT_FSIZE: 0,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_NPROC: 0,
        resource.RLIMIT_MEMLOCK: 0,
    }
    for name, most in limits.items():
        resource.setrlimit(name, (most, most))
    if os.getuid() == 0:
        # Without permission to change its user, root has few rights left. The filter holds anyway.
        with contextlib.suppress(OSError):
            os.setgroups([])
            os.setgid(NOBODY_ID)
            os.setuid(NOBODY_ID)


def filter_calls() -> str:
    """Install the seccomp filter; return why that fails, or an empty string."""
    machine = os.uname().machine
    if sys.platform != "linux" or machine not in ALLOWED:
        return f"there is no filter of system calls for {sys.platform} on {machine}"
    arch, allowed = ALLOWED[machine]
    steps = [(LOAD, 0, 0, 4), (EQUAL, 1, 0, arch), (RETURN, 0, 0, KILL_PROCESS), (LOAD, 0, 0, 0)]
    for number in allowed:
        steps += [(EQUAL, 0, 1, number), (RETURN, 0, 0, ALLOW)]
    for number in REFUSED[machine]:
        steps += [(EQUAL, 0, 1, number), (RETURN, 0, 0, REFUSE)]
    steps.append((RETURN, 0, 0, KILL_PROCESS))
    code = b"".join(struct.pack("HBBI", *step) for step in steps)
    held = ctypes.create_string_buffer(code, len(code))
    # struct sock_fprog {unsigned short len; struct sock_filter *filter;}
    program = ctypes.create_string_buffer(
        struct.pack("HxxxxxxP", len(steps), ctypes.addressof(held))
    )
    libc = ctypes.CDLL(None, use_errno=True)
    zero = ctypes.c_ulong(0)
    libc.prctl(PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL), zero, zero, zero)
    libc.prctl(PR_SET_DUMPABLE, zero, zero, zero, zero)
    wanted = (
        (PR_SET_NO_NEW_PRIVS, ctypes.c_ulong(1), zero),
        (PR_SET_SECCOMP, ctypes.c_ulong(SECCOMP_MODE_FILTER), ctypes.byref(program)),
    )
    for option, first, second in wanted:
        if libc.prctl(option, first, second, zero, zero) != 0:
            return (
                f"the kernel refuses a filter of system calls: {os.strerror(ctypes.get_errno())}"
            )
    return ""


def close_imports() -> None:
    """Leave programs only the loaded modules of the list."""
    keep = {module.__name__ for module in PROGRAMS_MAY_IMPORT}
    sys.path.clear()
    sys.path_hooks.clear()
    sys.meta_path.clear()
    sys.stdin = io.StringIO("")
    for name in list(sys.modules):
        top = name.split(".")[0]
        if top in FORBIDDEN and top not in keep:
            del sys.modules[name]


def watch() -> None:
    """Report what a program tries to use and exit."""
    write, leave = os.write, os._exit

    def hook(event: str, args: tuple[Any, ...]) -> None:
        word = event.split(".", maxsplit=1)[0]
        refused = FORBIDDEN.get(word)
        if (
            refused is None
            and event == "import"
            and args
            and str(args[0]).split(".")[0] in FORBIDDEN
        ):
            refused = FORBIDDEN[str(args[0]).split(".")[0]]
        if refused is not None and not (event == "open" and args[0] == NAME):
            report = {
                "status": "forbidden",
                "reason": f"the program tried to use {refused} ({event})",
            }
            write(1, json.dumps(report).encode())
            leave(0)

    sys.addaudithook(hook)


def run(request: dict[str, Any]) -> dict[str, object]:
    """Run the program and return its report."""
    names: dict[str, Any] = {"__name__": "program"}
    sys.stdout = sys.stderr = Printed()
    try:
        exec(compile(request["program"], NAME, "exec"), names)  # noqa: S102 - what it is for
        value = None
        if request["function"]:
            if request["function"] not in names:
                return {"status": "error", "reason": f"it defines no `{request['function']}`"}
            value = names[request["function"]](*request["arguments"])
        return {"status": "ok", "value": json.loads(json.dumps(value, allow_nan=False))}
    except OutputLimitError:
        return {"status": "output", "reason": f"it printed more than {OUTPUT:,} characters"}
    except MemoryError:
        return {"status": "memory", "reason": "it needed more memory than it may have"}
    except BaseException as error:  # noqa: BLE001 - SystemExit and whatever a program makes up
        return {"status": "error", "reason": f"it raised {type(error).__name__[:60]}"}


def main() -> None:
    """Read the request, drop all rights, run the program and report."""
    request = json.loads(sys.stdin.read())
    os.close(0)
    limit(request)
    refused = filter_calls()
    if refused:
        say(status="crashed", reason=refused)
    close_imports()
    watch()
    report = run(request)
    try:
        say(**report)
    except (MemoryError, ValueError, TypeError):
        say(status="error", reason="its result has no JSON form")


main()
