"""Options that commands share, as Typer reads them, and as the library takes them."""

import inspect
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from neuralgde._errors import InputError

_UNITS = {"s": 1.0, "min": 60.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0, "": 1.0}

Series = Annotated[str, typer.Argument(help="The readings: .csv or .parquet, or - for standard input.")]
Edges = Annotated[str | None, typer.Option(help="Edges: columns source, target[, weight][, start, end]; or a matrix.")]
Coordinates = Annotated[str | None, typer.Option(help="Sensors' latitude, longitude or x, y: edges from distances.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but what was asked for.")]

# Of the commands that fit a model, by the names that `ForecastConfig` has, and `config` for a file of them.
_FITTING: dict[str, Any] = {
    "model": Annotated[
        str | None, typer.Option("--model", "-m", help="gcde-gru (default), gcgru, latent-gsde, ridge or persistence.")
    ],
    "id": Annotated[str | None, typer.Option("--id", help="The column of sensors, if it is not found by itself.")],
    "time": Annotated[str | None, typer.Option("--time", help="The column of stamps.")],
    "values": Annotated[list[str] | None, typer.Option("--value", help="A column of readings; may be given again.")],
    "known": Annotated[
        list[str] | None, typer.Option("--known", help="A column known in advance; may be given again.")
    ],
    "static": Annotated[list[str] | None, typer.Option("--static", help="A column that stays for a sensor.")],
    "zone": Annotated[str | None, typer.Option("--zone", help="The zone of dates without one, such as Europe/Paris.")],
    "period": Annotated[
        str | None, typer.Option("--period", help="What repeats itself: 24h; for stamps that are numbers, a number.")
    ],
    "undirected": Annotated[bool | None, typer.Option("--undirected", help="Edges go both ways.")],
    "horizon": Annotated[
        str | None, typer.Option("--horizon", help="How far ahead to learn: 6h, or a number. By default a day.")
    ],
    "time_limit": Annotated[str | None, typer.Option("--time-limit", help="About how long it may take: 10min.")],
    "steps": Annotated[int | None, typer.Option("--steps", help="Steps of training, fewer for a quick look.")],
    "seed": Annotated[int | None, typer.Option("--seed", help="What decides all that is random.")],
    "config": Annotated[
        Path | None, typer.Option("--config", help="A TOML file of options; those given here come first.")
    ],
}


def fits_a_model(command: Callable[..., None]) -> Callable[..., None]:
    """A command whose last argument, `**options`, takes the options of a fit: Typer wants them in its signature."""
    own = list(inspect.signature(command).parameters.values())[:-1]
    more = [
        inspect.Parameter(n, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=a) for n, a in _FITTING.items()
    ]
    hints = {name: hint for name, hint in command.__annotations__.items() if name != "options"}
    command.__annotations__ = {**hints, **_FITTING}
    setattr(command, "__signature__", inspect.Signature([*own, *more]))  # noqa: B010
    return command


def read_options(options: dict[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """The options that were given, over those of the TOML file `config`; lengths of time as numbers.

    Second, those lengths between stamps that came with a unit, as text: they have a meaning for dates alone.
    """
    config = options.get("config")
    out: dict[str, Any] = {}
    if config is not None:
        import tomllib

        try:
            out = tomllib.loads(config.read_text())
        except OSError as error:
            raise InputError(f"--config: {config} cannot be read: {error.strerror}.") from error
        except tomllib.TOMLDecodeError as error:
            raise InputError(f"--config: {config}: not TOML: {error}.") from error
    out |= {name: value for name, value in options.items() if name != "config" and value is not None and value != []}
    units: dict[str, str] = {}
    for name in ("period", "horizon", "time_limit"):
        if isinstance(text := out.get(name), str):
            option = f"--{name.replace('_', '-')}"
            out[name] = length(text, option)
            if name != "time_limit" and has_unit(text):
                units[option] = text
    return out, units


def refuse(options: dict[str, Any], other: str) -> None:
    """Refuse options that another one leaves no use for."""
    for name, value in options.items():
        if value is not None and value is not False:
            raise InputError(f"--{name.replace('_', '-')}: of no use with {other}. Leave it out.")


def length(text: str, name: str) -> float:
    """A length of time, such as 5min, in seconds; a plain number is itself."""
    match = re.fullmatch(r"\s*([0-9]*\.?[0-9]+)\s*([a-z]*)\s*", text.lower())
    if match is None or match[2] not in _UNITS or float(match[1]) <= 0:
        raise InputError(f"{name}: expected a length of time such as 5min, 2h, 1d, or a positive number, got {text!r}.")
    return float(match[1]) * _UNITS[match[2]]


def has_unit(text: str) -> bool:
    """Whether a length of time has a unit behind its number."""
    return text.strip()[-1:].isalpha()


def refuse_units(units: dict[str, str]) -> None:
    """Refuse lengths with a unit, by option: where stamps are numbers, no one knows how long one of them takes."""
    for name, text in units.items():
        raise InputError(f"{name}: expected a plain number, because the stamps are numbers and no dates, got {text!r}.")


def check_folder(folder: Path, option: str = "--out") -> None:
    """Refuse a folder that could not be made, before the work; it is made when something is written to it."""
    there = next((p for p in (folder, *folder.parents) if p.exists()), Path())
    if not there.is_dir():
        raise InputError(f"{option}: {folder} cannot be made a folder: {there} is a file. Choose another.")
    if not os.access(there, os.W_OK):
        raise InputError(f"{option}: {folder} cannot be written to: permission denied for {there}. Choose another.")


def make_folder(folder: Path, option: str = "--out") -> None:
    """Make a folder to write to."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{option}: {folder} cannot be made a folder: {error.strerror}. Choose another.") from error
