"""JSV library for Python 3: an object with the methods of a dialogue, and functions with the names of the other libraries.

    from JSV import JSV                         from JSV import *
    jsv = JSV()                                 def jsv_on_start(): ...
    def on_verify(): jsv.accept()               def jsv_on_verify(): jsv_accept()
    jsv.on_verify = on_verify                   jsv_main()
    jsv.main()

A class may also extend JSV and define on_start and on_verify. Values are texts; a parameter that is not there is "".
"""

from __future__ import annotations

import os
import sys
import tempfile
from typing import Any, Callable

_NAMES = """is_param get_param set_param del_param sub_is_param sub_get_param sub_add_param sub_del_param
    is_env get_env add_env mod_env del_env accept correct reject reject_wait log_info log_warning log_error
    send_env send_command send_error script_log show_params show_envs clear_params clear_envs""".split()  # noqa: SIM905 - words
__all__ = ["JSV", "jsv_main", *("jsv_" + name for name in _NAMES)]  # noqa: PLE0604 - they are texts


class JSV:
    """One script: the submission that it verifies, and the dialogue about it."""

    on_start: Callable[[], None] | None = None
    on_verify: Callable[[], None] | None = None

    def __init__(self, logging_enabled: bool = False, logfile: str = "") -> None:
        self.logging_enabled = logging_enabled
        self.logfile = logfile
        self.state = "initialized"
        self.quit_flag = False
        self.params: dict[str, str] = {}
        self.envs: dict[str, str] = {}

    def _log(self, text: str) -> None:
        if self.logging_enabled:
            if not self.logfile:  # a name that others can foretell may be a link of theirs
                number, self.logfile = tempfile.mkstemp(prefix=f"jsv_{os.getpid()}.", dir="/tmp")
                os.close(number)
            with open(self.logfile, "a", encoding="utf-8") as file:  # noqa: PTH123
                file.write(text + "\n")

    def send(self, line: str) -> None:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()
        self._log("<<< " + line)

    def _error(self, text: str) -> None:
        self.send("ERROR " + text)

    def is_param(self, name: str) -> bool:
        return name in self.params

    def get_param(self, name: str) -> str:
        return self.params.get(name, "")

    def set_param(self, name: str, value: str) -> None:
        self.params[name] = value
        self.send(f"PARAM {name} {value}")

    def del_param(self, name: str) -> None:
        if self.params.pop(name, None) is not None:
            self.send(f"PARAM {name}")

    def _parts(self, name: str) -> dict[str, str | None]:
        items = (item.partition("=") for item in self.get_param(name).split(",") if item)
        return {part: value if equals else None for part, equals, value in items}

    def _set_parts(self, name: str, parts: dict[str, str | None]) -> None:
        text = ",".join(part if value is None else f"{part}={value}" for part, value in parts.items())
        self.set_param(name, text)

    def sub_is_param(self, name: str, part: str) -> bool:
        return part in self._parts(name)

    def sub_get_param(self, name: str, part: str) -> str:
        return self._parts(name).get(part) or ""

    def sub_add_param(self, name: str, part: str, value: str = "") -> None:
        parts = self._parts(name)
        parts[part] = value or None
        self._set_parts(name, parts)

    def sub_del_param(self, name: str, part: str) -> None:
        if self.is_param(name):
            parts = self._parts(name)
            parts.pop(part, None)
            self._set_parts(name, parts)

    def is_env(self, name: str) -> bool:
        return name in self.envs

    def get_env(self, name: str) -> str:
        return self.envs.get(name, "")

    def add_env(self, name: str, value: str) -> None:
        self.envs[name] = value
        self.send(f"ENV ADD {name} {value}")

    def mod_env(self, name: str, value: str) -> None:
        self.envs[name] = value
        self.send(f"ENV MOD {name} {value}")

    def del_env(self, name: str) -> None:
        if self.envs.pop(name, None) is not None:
            self.send(f"ENV DEL {name}")

    def send_command(self, *words: str) -> None:
        self.send(" ".join(words))

    def send_error(self, *words: str) -> None:
        self._error(" ".join(words))

    def script_log(self, *words: str) -> None:
        self._log(" ".join(words))

    def send_env(self) -> None:
        self.send("SEND ENV")

    def show_params(self) -> None:
        for name, value in self.params.items():
            self.log_info(f"param {name}={value}")

    def show_envs(self) -> None:
        for name, value in self.envs.items():
            self.log_info(f"env {name}={value}")

    def clear_params(self) -> None:
        self.params.clear()

    def clear_envs(self) -> None:
        self.envs.clear()

    def log_info(self, text: str) -> None:
        self.send(f"LOG INFO {text}")

    def log_warning(self, text: str) -> None:
        self.send(f"LOG WARNING {text}")

    def log_error(self, text: str) -> None:
        self.send(f"LOG ERROR {text}")

    def _result(self, word: str, text: str) -> None:
        if self.state != "verifying":
            self._error(f"a result was given in state {self.state}")
            return
        self.state = "initialized"
        self.send(f"RESULT STATE {word} {text}".rstrip())

    def accept(self, text: str = "") -> None:
        self._result("ACCEPT", text)

    def correct(self, text: str = "") -> None:
        self._result("CORRECT", text)

    def reject(self, text: str = "") -> None:
        self._result("REJECT", text)

    def reject_wait(self, text: str = "") -> None:
        self._result("REJECT_WAIT", text)

    def _need(self, state: str, command: str) -> bool:
        if self.state != state:
            self._error(f"{command} was received in state {self.state}")
        return self.state == state

    def _hear_start(self, rest: str) -> None:
        if self._need("initialized", "START"):
            if self.on_start:
                self.on_start()
            self.state = "started"
            self.send("STARTED")

    def _hear_param(self, rest: str) -> None:
        if self._need("started", "PARAM"):
            name, _, value = rest.partition(" ")
            if value or (name.startswith("CMDARG") and name[6:].isdigit()):
                self.params[name] = value
            else:
                self.params.pop(name, None)

    def _hear_env(self, rest: str) -> None:
        if self._need("started", "ENV"):
            verb, _, rest = rest.partition(" ")
            name, _, value = rest.partition(" ")
            if verb == "ADD":
                self.envs[name] = value

    def _hear_begin(self, rest: str) -> None:
        if not self._need("started", "BEGIN"):
            return
        self.state = "verifying"
        (self.on_verify or self.accept)()
        self.clear_params()
        self.clear_envs()
        if self.state == "verifying":
            self.state = "initialized"
            self._error("on_verify gave no result")

    def _hear_show(self, rest: str) -> None:
        self.show_params()
        self.show_envs()

    def main(self) -> None:
        heard: dict[str, Callable[[str], None]] = {
            "START": self._hear_start,
            "PARAM": self._hear_param,
            "ENV": self._hear_env,
            "BEGIN": self._hear_begin,
            "SHOW": self._hear_show,
        }
        for line in sys.stdin:
            text = line.rstrip("\n")
            self._log(">>> " + text)
            command, _, rest = text.partition(" ")
            if command == "QUIT" or self.quit_flag:
                return
            if command in heard:
                heard[command](rest)
            elif command:
                self._error(f"unknown command {command}")


# --- functions, for scripts that define jsv_on_start and jsv_on_verify ---

_script = JSV()


def jsv_main() -> None:
    """Serve the host with the two functions of the script."""
    main = sys.modules["__main__"]
    _script.on_start = getattr(main, "jsv_on_start", None)
    _script.on_verify = getattr(main, "jsv_on_verify", None)
    _script.logging_enabled = bool(getattr(main, "jsv_logging_enabled", False))
    _script.main()


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(_script, name[4:])
    raise AttributeError(name)
