"""The command `gde`."""

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from neuralgde._errors import CheckpointError, InputError, SolveError

app = typer.Typer(
    name="gde",
    help="Neural graph differential equations: models of systems on graphs in continuous time.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from neuralgde import __version__

        typer.echo(f"neuralgde {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    pass


@app.command()
def demo() -> None:
    """Show the library at work on a small example."""
    # Commands import what they need when they run: JAX would make even `gde --help` slow.
    from neuralgde.experiments.demo import run

    run()


def _use_compilation_cache() -> None:
    """Let JAX keep compiled programs between runs, unless the user has said where or that it should not."""
    if "JAX_COMPILATION_CACHE_DIR" in os.environ:
        return
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "neuralgde" / "jax"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return
    os.environ["JAX_COMPILATION_CACHE_DIR"] = str(folder)
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.1")


def _fail(error: Exception, status: int) -> None:
    print(f"gde: error: {' '.join(str(error).split())}", file=sys.stderr)
    sys.exit(status)


def main() -> None:
    """Run `gde`; an error that the user can mend is one line, without a traceback."""
    _use_compilation_cache()
    try:
        app()
    except InputError as error:
        _fail(error, 2)
    except (SolveError, CheckpointError) as error:
        _fail(error, 1)
