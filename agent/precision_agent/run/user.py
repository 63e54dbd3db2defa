"""Makes the process's user one whom torch and its compilers can ask for a name and a place to write.

A container's user often has no entry in /etc/passwd, and its home is `/` or read-only. Inductor asks for the user's
name (torch before 2.13 ends with a KeyError where there is none), Triton and CUDA write their caches below the home.
"""

import contextlib
import os
import pwd
import tempfile
from collections.abc import MutableMapping
from pathlib import Path

NAME = "precision"
NAMED_BY = ("LOGNAME", "USER")
"""What `getpass.getuser` asks before /etc/passwd."""


def settle_user(environment: MutableMapping[str, str]) -> None:
    """Writes LOGNAME, USER and HOME into `environment` where they are missing or of no use; before torch is imported.

    A name or a home that is of use stays as it is.
    """
    entry = _entry()
    for variable in NAMED_BY:
        if not environment.get(variable):
            environment[variable] = entry.pw_name if entry else NAME
    home = environment.get("HOME") or (entry.pw_dir if entry else "")
    if not (home and Path(home).is_dir() and os.access(home, os.W_OK | os.X_OK)):
        with contextlib.suppress(FileNotFoundError):  # no place at all can be written: whoever needs one says so
            environment["HOME"] = tempfile.gettempdir()


def _entry() -> pwd.struct_passwd | None:
    try:
        return pwd.getpwuid(os.getuid())
    except KeyError:
        return None
