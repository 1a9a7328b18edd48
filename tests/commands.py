"""The command `gde`, in this process or in one of its own, which takes seconds more to import what it needs."""

import contextlib
import io
import subprocess
import sys
from typing import NamedTuple
from unittest import mock

from neuralgde import cli

# To be run first in a process: its last word tells whether it loaded JAX, which takes seconds.
TELL_OF_JAX = "import atexit, sys; atexit.register(lambda: print('jax' in sys.modules))"


class Done(NamedTuple):
    status: int
    out: str
    err: str


def status(*args) -> int:
    """The exit status of a command run here; what it says goes to this process's output."""
    with mock.patch("sys.argv", ["gde", *map(str, args)]):
        try:
            cli.main()
        except SystemExit as stop:
            return stop.code or 0
    return 0


def here(*args) -> Done:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = status(*args)
    return Done(code, out.getvalue(), err.getvalue())


def elsewhere(*args, first: str = "") -> Done:
    """In another process, which runs the given code first."""
    code = f"{first}\nimport sys; from neuralgde.cli import main; sys.argv[0] = 'gde'; main()"
    run = subprocess.run([sys.executable, "-c", code, *map(str, args)], capture_output=True, text=True)
    return Done(run.returncode, run.stdout, run.stderr)
