"""The text that the quick start searches: the docstrings of this Python's standard library.

`retriever.py` runs this file as a script in a fresh, isolated interpreter (`python -I -S`), which
imports the modules below and prints one JSON object per document, sorted by name. A process of its
own, because others patch what we read (Prefect replaces `print`, pytest replaces `sys` hooks), and
because importing two hundred modules is nothing to do to somebody else's process.

A document is one public module, class, function, method or property, under the name its users
write: `json.dumps`, `os.path.join` (never `posixpath.join`), `str.split` (never
`builtins.str.split`). Methods and properties without a docstring are left out; modules, classes
and functions without one stay, as they can be found by name (`csv.DictReader` has none). An object
with several public names is one document; the others are its aliases. A method belongs to the
public class that defines it: `pathlib.PurePath.with_suffix` is not told again under
`pathlib.Path`, while what comes from a private base appears under the public class.
"""

import importlib
import inspect
import json
import re
import sys
import types
import warnings
from collections.abc import Container, Iterator

# The modules that people import. Left out: those deprecated in 3.11 and gone since, those whose
# import shows or starts something (antigravity, this, idlelib, turtledemo), those that need a
# screen (tkinter, turtle, curses), tests, and internals. Earlier modules own what several offer.
MODULES = tuple(
    """
    builtins abc argparse array ast asyncio atexit base64 bdb binascii bisect bz2 cProfile calendar
    cmath cmd code codecs codeop collections collections.abc colorsys compileall concurrent.futures
    configparser contextlib contextvars copy copyreg csv ctypes ctypes.util dataclasses datetime
    dbm decimal difflib dis doctest email email.header email.message email.mime.multipart
    email.mime.text email.parser email.policy email.utils enum errno faulthandler filecmp fileinput
    fnmatch fractions ftplib functools gc getopt getpass gettext glob graphlib gzip hashlib heapq
    hmac html html.parser http http.client http.cookiejar http.cookies http.server imaplib
    importlib importlib.metadata importlib.resources importlib.util inspect io ipaddress itertools
    json keyword linecache locale logging logging.config logging.handlers lzma mailbox math
    mimetypes mmap modulefinder multiprocessing multiprocessing.pool multiprocessing.shared_memory
    netrc numbers operator os os.path pathlib pdb pickle pickletools pkgutil platform plistlib
    poplib pprint profile pstats py_compile pyclbr pydoc queue quopri random re reprlib runpy sched
    secrets select selectors shelve shlex shutil signal site smtplib socket socketserver sqlite3
    ssl stat statistics string struct subprocess symtable sys sysconfig tabnanny tarfile tempfile
    textwrap threading time timeit token tokenize tomllib trace traceback tracemalloc types typing
    unicodedata unittest unittest.mock urllib.error urllib.parse urllib.request urllib.robotparser
    uuid venv warnings wave weakref webbrowser wsgiref.simple_server wsgiref.util xml.dom.minidom
    xml.etree.ElementTree xml.sax xml.sax.handler xml.sax.saxutils xmlrpc.client xmlrpc.server
    zipapp zipfile zipimport zlib zoneinfo
    """.split()  # noqa: SIM905 - as a literal it would be 170 lines
)

# Objects whose own `__name__` is not the name people write.
PREFERRED_NAMES = frozenset(
    {"selectors.DefaultSelector", "weakref.ref", "xml.etree.ElementTree.fromstring"}
)

_PARAMETER = re.compile(r"[(,]\s*\**([a-z_]\w*)")


def documents() -> list[dict[str, object]]:
    """Return every document, sorted by name, with its aliases, signature, summary and body."""
    modules = {name: module for name in MODULES if (module := _imported(name)) is not None}
    offered: list[tuple[str, object]] = [*modules.items()]
    for module_name, module in modules.items():
        prefix = "" if module_name == "builtins" else f"{module_name}."
        offered += [(prefix + name, thing) for name, thing in _public_members(module)]
    id_to_names: dict[int, list[str]] = {}
    id_to_thing: dict[int, object] = {}
    for name, thing in offered:
        id_to_names.setdefault(_identity(thing), []).append(name)
        id_to_thing.setdefault(_identity(thing), thing)
    found = []
    for key, thing in id_to_thing.items():
        own = getattr(thing, "__name__", None)
        names = sorted(
            id_to_names[key],
            key=lambda name: (name not in PREFERRED_NAMES, name.rpartition(".")[2] != own),
        )
        found.append(_document(names, thing))
        if inspect.isclass(thing):
            found += [
                _document([f"{names[0]}.{name}"], member)
                for name, member in _class_members(thing, public=id_to_thing)
                if member.__doc__ and _identity(member) not in id_to_thing
            ]
    return sorted(found, key=lambda document: str(document["name"]))


def _identity(thing: object) -> int:
    """Identify an object; a method is told from its function by nobody but Python.

    `random.choice` is a method of a hidden instance: it is one with `random.Random.choice`.
    """
    return id(getattr(thing, "__func__", thing))


def _imported(name: str) -> types.ModuleType | None:
    """Import a module, or return None where this Python was built without it."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return importlib.import_module(name)
    except ImportError:
        return None


def _public_members(module: types.ModuleType) -> Iterator[tuple[str, object]]:
    """Yield the functions and classes that a module offers, under the names it offers them by."""
    listed = getattr(module, "__all__", None)
    home = module.__name__.partition(".")[0].lstrip("_")
    for name in dir(module) if listed is None else dict.fromkeys(listed):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            thing = getattr(module, name, None)
        if name.startswith("_") or not (inspect.isroutine(thing) or inspect.isclass(thing)):
            continue
        origin = str(getattr(thing, "__module__", "")).partition(".")[0].lstrip("_")
        if listed is not None or home in {origin, "builtins"}:
            yield name, thing


def _class_members(owner: type, public: Container[int]) -> Iterator[tuple[str, object]]:
    """Yield the methods and properties that the class, or a private base of it, defines."""
    private_bases = [
        base for base in owner.__mro__[1:] if base is not object and id(base) not in public
    ]
    defined: dict[str, object] = {}
    for base in [*reversed(private_bases), owner]:
        defined |= vars(base)
    for name, stored in sorted(defined.items()):
        member = stored.__func__ if isinstance(stored, classmethod | staticmethod) else stored
        if not name.startswith("_") and (inspect.isroutine(member) or _is_property(member)):
            yield name, member


def _is_property(stored: object) -> bool:
    kinds = (property, types.GetSetDescriptorType, types.MemberDescriptorType)
    return isinstance(stored, kinds) or type(stored).__name__ == "cached_property"


def _document(names: list[str], thing: object) -> dict[str, object]:
    """Split a docstring into how the object is called, its first paragraph, and the rest."""
    name, *aliases = names
    short = name.rpartition(".")[2]
    docstring = getattr(thing, "__doc__", None)
    lines = inspect.cleandoc(docstring).split("\n") if isinstance(docstring, str) else []
    # Functions written in C often open with how they are called.
    signatures = []
    while lines and lines[0].startswith(f"{short}("):
        signatures.append(lines.pop(0))
    if not signatures and (parameters := _parameters(thing)):
        signatures.append(f"{short}({', '.join(parameters)})")
    summary, _, body = "\n".join(lines).strip().partition("\n\n")
    return {
        "name": name,
        "aliases": aliases,
        "signature": "\n".join(signatures),
        "summary": summary,
        "body": body,
    }


def _parameters(thing: object) -> list[str]:
    """Return the parameter names: no defaults, whose text may hold an address of this process."""
    if inspect.isclass(thing):
        thing = vars(thing).get("__init__", thing)
    thing = inspect.unwrap(thing) if callable(thing) else thing
    code = getattr(thing, "__code__", None)
    if isinstance(code, types.CodeType):
        count = code.co_argcount + code.co_kwonlyargcount
        starred = bool(code.co_flags & inspect.CO_VARARGS) + bool(
            code.co_flags & inspect.CO_VARKEYWORDS
        )
        names = list(code.co_varnames[: count + starred])
    else:
        names = _PARAMETER.findall(getattr(thing, "__text_signature__", None) or "")
    return [name for name in names if name not in {"self", "cls"}]


if __name__ == "__main__":
    for each in documents():
        sys.stdout.write(json.dumps(each) + "\n")
