"""The limited process: what programs may do, and forty that try more."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from convergence_core.records import Json
from tasks.games.sandbox import Sandbox

SANDBOX = Sandbox(cpu_s=1, wall_s=60.0)

OS = "import random\nos = random._os\n"
"""The way to ``os`` that the list of imports leaves: through a module that has it."""
NATIVE = (
    "CDLL = next(c for c in object.__subclasses__() if c.__name__ == 'CDLL')\nlibc = CDLL(None)\n"
)
"""Native calls, by a class that lies about."""

HOSTILE = {
    # processes
    "fork bomb": (OS + "while True: os.fork()", "forbidden"),
    "fork bomb of native calls": (NATIVE + "while True: libc.fork()", "forbidden"),
    "shell": (OS + "os.system('id')", "forbidden"),
    "subprocess": ("import subprocess\nsubprocess.run(['id'])", "forbidden"),
    "another program in its place": (OS + "os.execv('/bin/sh', ['sh'])", "forbidden"),
    "spawn": (OS + "os.posix_spawn('/bin/sh', ['sh'], {})", "forbidden"),
    "threads": ("import threading\nthreading.Thread(target=print).start()", "forbidden"),
    "raw thread": (
        "import sys\nsys.modules['functools'].__dict__\nfrom functools import RLock\n"
        "import _thread\n_thread.start_new_thread(print, ())",
        "forbidden",
    ),
    "terminal": ("import pty\npty.spawn('/bin/sh')", "forbidden"),
    # memory and CPU
    "memory": ("x = bytearray(10**11)", "memory"),
    "memory by and by": ("x = []\nwhile True: x.append(bytearray(10**7))", "memory"),
    "endless loop": ("while True: pass", "timeout"),
    "endless loop that catches": (
        "while True:\n    try:\n        while True: pass\n    except BaseException: pass",
        "timeout",
    ),
    "endless number": ("x = 9 ** 9 ** 9", "timeout"),
    "regular expression": ("import re\nre.match(r'(a+)+$', 'a' * 60 + 'b')", "timeout"),
    "recursion": ("def f(): f()\nf()", "error"),
    "recursion of the interpreter": (
        "import sys\nsys.setrecursionlimit(10**9)\ndef f(n): return [f(n + 1)]\nf(0)",
        "crashed|memory|error|timeout",
    ),
    "raised limit": (
        NATIVE + "libc.setrlimit(0, (ctypes.c_ulong * 2)(999, 999))\nwhile True: pass",
        "forbidden",
    ),
    # disk
    "disk": ("open('big', 'w').write('x' * 10**9)", "forbidden"),
    "disk by descriptor": (OS + "os.open('big', os.O_CREAT | os.O_WRONLY)", "forbidden"),
    "delete": (OS + "os.remove('/etc/passwd')", "forbidden"),
    "the name of the program": ("open('<program>')", "error"),
    "list": (OS + "os.listdir('/')", "forbidden"),
    "password file": ("print(open('/etc/passwd').read())", "forbidden"),
    "home folder": ("import pathlib\nprint(list(pathlib.Path.home().iterdir()))", "forbidden"),
    "home folder by os": (OS + "os.scandir(os.path.expanduser('~'))", "forbidden"),
    "file of native calls": (NATIVE + "libc.open(b'/etc/passwd', 0)", "forbidden"),
    "file in memory": (OS + "os.memfd_create('x')", "forbidden"),
    "database": ("import sqlite3\nsqlite3.connect('x')", "forbidden"),
    # network
    "socket": ("import socket\nsocket.create_connection(('127.0.0.1', 80))", "forbidden"),
    "http": ("import urllib.request\nurllib.request.urlopen('http://127.0.0.1')", "forbidden"),
    "socket of native calls": (NATIVE + "libc.socket(2, 1, 0)", "forbidden"),
    "pipe": (OS + "os.pipe()", "forbidden"),
    # other processes
    "kill the parent": (OS + "os.kill(os.getppid(), 9)", "forbidden"),
    "kill the parent natively": (NATIVE + "libc.kill(-1, 9)", "forbidden"),
    "kill its group": (OS + "os.killpg(0, 9)", "forbidden"),
    "ptrace": (NATIVE + "libc.ptrace(16, 1, 0, 0)", "forbidden"),
    "memory of the parent": (NATIVE + "libc.process_vm_readv(1, 0, 0, 0, 0, 0)", "forbidden"),
    "environment of the parent": (OS + "open(f'/proc/{os.getppid()}/environ')", "forbidden"),
    # rights
    "root": (OS + "os.setuid(0)", "forbidden"),
    "another filter": (NATIVE + "libc.prctl(22, 2, 0, 0, 0)", "forbidden"),
    "priority": (OS + "os.nice(-10)", "forbidden"),
    "session of its own": (OS + "os.setsid()", "forbidden"),
    "descriptors": (OS + "while True: os.dup(1)", "forbidden"),
    "mount": (NATIVE + "libc.mount(b'x', b'/', b'tmpfs', 0, 0)", "forbidden"),
    # output
    "endless output": ("while True: print('x' * 1000)", "output"),
    "endless output by descriptor": (OS + "while True: os.write(1, b'x' * 10_000)", "output"),
    "endless error output": (
        "import sys\nwhile True: sys.stderr.write('x' * 1000)",
        "output",
    ),
    "no report": (OS + "os._exit(0)", "crashed"),
    "a forged refusal": (
        OS + 'os.write(1, b\'{"status": "unavailable"}\')\nos._exit(0)',
        "crashed",
    ),
    "a report that is no JSON": (
        OS + 'os.write(1, b\'{"status": "ok", "value": NaN}\')\nos._exit(0)',
        "crashed",
    ),
    "a report of an endless number": (
        OS + 'os.write(1, b\'{"status": "ok", "value": 1e999}\')\nos._exit(0)',
        "crashed",
    ),
    "a report of many digits": (
        OS
        + "os.write(1, b'{\"status\": \"ok\", \"value\": ' + b'9' * 50_000 + b'}')\nos._exit(0)",
        "crashed",
    ),
    "a deep report": (
        OS + 'os.write(1, b\'{"status": "ok", "value": \' + b\'[\' * 30_000)\nos._exit(0)',
        "crashed",
    ),
    "abort": (OS + "os.abort()", "forbidden"),
    "an exception of any name": ("raise type('x' * 10_000, (BaseException,), {})", "error"),
    "exit": ("raise SystemExit(0)", "error"),
}


@pytest.mark.parametrize("name", sorted(HOSTILE))
def test_a_hostile_program_ends_with_a_reason_and_no_value(name):
    program, endings = HOSTILE[name]
    found = SANDBOX.run(program + "\ndef f(): return 1\n", function="f")
    assert found.ending in endings.split("|"), found
    assert found.value is None
    assert 5 < len(found.reason) <= 200


def test_the_environment_is_empty(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("API_KEY", "sk-very-secret")
    program = OS + "def f(): return [dict(os.environ), dict(os.environb), os.getcwd]"
    found = SANDBOX.run(program.replace(", os.getcwd", ""), function="f")
    assert found.value == [{}, {}]


def test_a_system_call_is_stopped_by_the_kernel_alone():
    """Without the audit hook's help: the reason names no attempt, the process was ended by SIGSYS."""
    found = SANDBOX.run(OS + "os.getppid()\ndef f(): return 1", function="f")
    assert (found.ending, found.reason) == (
        "forbidden",
        "it made a system call that is not allowed",
    )


def test_processes_leave_nothing_behind():
    before = {path.name for path in Path("/proc").iterdir()}
    for _ in range(3):
        assert SANDBOX.run("x = 1").ending == "ok"
    new = {path.name for path in Path("/proc").iterdir()} - before
    children = [pid for pid in new if pid.isdigit() and parent_of(pid) == os.getpid()]
    assert children == []


def parent_of(pid: str) -> int | None:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
    except (FileNotFoundError, ProcessLookupError):
        return None


@pytest.mark.parametrize(
    ("program", "arguments", "value"),
    [
        ("def f(x): return x + 1", [3], 4),
        ("import json, math, re\ndef f(t): return json.loads(t)", ['{"a": [1, null]}'], {"a": [1, None]}),
        ("def f(): print('a'); return {'é': '\\ud83d\\ude00'}", [], {"é": "😀"}),
        ("def f(*xs): return sorted(set(xs))", ["b", "a"], ["a", "b"]),
        ("import time\ndef f(): time.sleep(0.001); return time.time() > 0", [], True),
    ],
)  # fmt: skip
def test_what_a_function_returns_comes_back(program: str, arguments: list[Json], value: Json):
    found = SANDBOX.run(program, function="f", arguments=arguments)
    assert (found.ending, found.value, found.reason) == ("ok", value, "")


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ("def g(): pass", "it defines no `f`"),
        ("def f(): return {1, 2}", "it raised TypeError"),
        ("def f(): return float('nan')", "it raised ValueError"),
        ("def f(: pass", "it raised SyntaxError"),
        ("import numpy", "it raised ModuleNotFoundError"),
        ("x = 1 / 0", "it raised ZeroDivisionError"),
        ("def f():\n  x = []\n  x.append(x)\n  return x", "it raised ValueError"),
    ],
)
def test_a_program_that_fails_says_how(program: str, reason: str):
    found = SANDBOX.run(program, function="f")
    assert (found.ending, found.reason) == ("error", reason)


def test_the_process_dies_with_its_parent(tmp_path):
    code = (
        "from tasks.games.sandbox import *\n"
        "import tasks.games.sandbox as s, os\n"
        "assert s.why_unavailable() == ''\n"
        "popen = s.subprocess.Popen\n"
        "def told(*a, **k):\n"
        "    p = popen(*a, **k); print(p.pid, flush=True); return p\n"
        "s.subprocess.Popen = told\n"
        "Sandbox(cpu_s=60, wall_s=600).run('import time\\nwhile True: time.sleep(1)')\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": ":".join(filter(None, sys.path))},
    )
    assert parent.stdout is not None
    child = parent.stdout.readline().strip()
    while not is_filtered(child):
        assert parent.poll() is None
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    parent.stdout.close()
    while parent_of(child) is not None and not is_zombie(child):
        os.sched_yield()


def is_filtered(pid: str) -> bool:
    return "Seccomp:\t2" in Path(f"/proc/{pid}/status").read_text()


def is_zombie(pid: str) -> bool:
    try:
        return "State:\tZ" in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True
