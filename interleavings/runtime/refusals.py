"""What the loop refuses, by name, and where the program asked for it."""

from __future__ import annotations

import sys
from typing import Any, NoReturn

from ..errors import ForbiddenCall, ToldApart

# A call is looked for behind their frames: the module that defines a function is not the one that calls it.
DEFINING_MODULES = frozenset({"random", "secrets", "socket", "subprocess", "threading", "uuid", "concurrent"})


def calling_place() -> str:
    """Return file, line and function of the innermost frame outside the explorer, asyncio and defining modules."""
    frame: Any = sys._getframe(1)
    while frame is not None:
        module: str = frame.f_globals.get("__name__", "")
        package = module.partition(".")[0]
        own = package == "interleavings" and not module.startswith("interleavings.scenarios")
        if not own and package != "asyncio" and package not in DEFINING_MODULES:
            code = frame.f_code
            return f"{code.co_filename.rpartition('/')[2]}:{frame.f_lineno} in {code.co_qualname}"
        frame = frame.f_back
    return "an unknown place"


def calling_module(depth: int) -> str:
    """Return the name of the module that called, `depth` frames above the caller of this function."""
    name: str = sys._getframe(depth + 1).f_globals.get("__name__", "")
    return name


_REFUSED = {
    "sock_accept": "a socket", "sock_connect": "a socket", "sock_recv": "a socket", "sock_recv_into": "a socket",
    "sock_recvfrom": "a socket", "sock_recvfrom_into": "a socket", "sock_sendall": "a socket",
    "sock_sendfile": "a socket", "sock_sendto": "a socket", "create_connection": "a socket",
    "create_server": "a socket", "create_datagram_endpoint": "a socket", "create_unix_connection": "a socket",
    "create_unix_server": "a socket", "connect_accepted_socket": "a socket", "sendfile": "a socket",
    "start_tls": "a socket", "getaddrinfo": "a name server", "getnameinfo": "a name server",
    "connect_read_pipe": "a pipe", "connect_write_pipe": "a pipe", "add_reader": "a file descriptor",
    "add_writer": "a file descriptor", "remove_reader": "a file descriptor", "remove_writer": "a file descriptor",
    "subprocess_exec": "a subprocess", "subprocess_shell": "a subprocess", "add_signal_handler": "a signal",
    "remove_signal_handler": "a signal", "run_forever": "a second loop", "run_until_complete": "a second loop",
    "stop": "the loop itself",
}  # fmt: skip


class RefusingLoop:
    """The half of a loop that says no. The methods are added below, one for each name."""

    def __init__(self) -> None:
        self.forbidden: list[ForbiddenCall] = []

    def refuse(self, name: str, instead: str) -> NoReturn:
        """Raise and remember a forbidden call: a program that swallows it has made it all the same."""
        error = ForbiddenCall(name, calling_place(), instead)
        self.forbidden.append(error)
        raise error

    def refuse_to_tell_apart(self, name: str) -> NoReturn:
        """Raise and remember that the program asked for a name which identical tasks have none of."""
        error = ToldApart(name, calling_place())
        self.forbidden.append(error)
        raise error


def _refusal(name: str, what: str) -> Any:
    def refused(self: RefusingLoop, *args: Any, **options: Any) -> NoReturn:
        self.refuse(f"loop.{name}", f"It needs {what}: put a fake behind an interface of your own")

    refused.__name__ = name
    refused.__doc__ = f"Refuse: {name} needs {what}."
    return refused


for _name, _what in _REFUSED.items():
    setattr(RefusingLoop, _name, _refusal(_name, _what))
