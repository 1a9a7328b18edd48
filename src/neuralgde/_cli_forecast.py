"""The commands for one's own tables: `gde fit`, `gde forecast` and `gde backtest`."""

import contextlib
import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from neuralgde._errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from neuralgde.forecast import Forecaster

_UNITS = {"s": 1.0, "min": 60.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0, "": 1.0}

Series = Annotated[str, typer.Argument(help="The readings: .csv or .parquet, or - for standard input.")]
Edges = Annotated[str | None, typer.Option(help="Edges: columns source, target[, weight][, start, end]; or a matrix.")]
Coordinates = Annotated[str | None, typer.Option(help="Sensors' latitude, longitude or x, y: edges from distances.")]
ModelName = Annotated[
    str | None, typer.Option("--model", "-m", help="gcde-gru (default), gcgru, latent-gsde, ridge or persistence.")
]
Id = Annotated[str | None, typer.Option("--id", help="The column of sensors, if it is not found by itself.")]
Time = Annotated[str | None, typer.Option("--time", help="The column of stamps.")]
Value = Annotated[list[str] | None, typer.Option("--value", help="A column of readings; may be given again.")]
Known = Annotated[list[str] | None, typer.Option("--known", help="A column known in advance; may be given again.")]
Static = Annotated[list[str] | None, typer.Option("--static", help="A column that stays for a sensor.")]
Zone = Annotated[str | None, typer.Option(help="The zone of dates without one, such as Europe/Paris.")]
Period = Annotated[str | None, typer.Option(help="What repeats itself: 24h; for stamps that are numbers, a number.")]
Undirected = Annotated[bool | None, typer.Option("--undirected", help="Edges go both ways.")]
Horizon = Annotated[str | None, typer.Option(help="How far ahead to learn: 6h, or a number. By default a day.")]
Limit = Annotated[str | None, typer.Option("--time-limit", help="About how long it may take: 10min.")]
Steps = Annotated[int | None, typer.Option(help="Steps of training, fewer for a quick look.")]
Seed = Annotated[int | None, typer.Option(help="What decides all that is random.")]
Config = Annotated[Path | None, typer.Option("--config", help="A TOML file of options; those given here come first.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but what was asked for.")]


def fit(
    series: Series,
    out: Annotated[Path, typer.Option("--out", "-o", help="The model to write, such as model.gde.")] = Path(
        "model.gde"
    ),
    edges: Edges = None,
    coordinates: Coordinates = None,
    sbml: Annotated[
        Path | None, typer.Option(help="A reaction network; the table then has runs of it: run, time, species.")
    ] = None,
    model: ModelName = None,
    id_: Id = None,
    time: Time = None,
    value: Value = None,
    known: Known = None,
    static: Static = None,
    zone: Zone = None,
    period: Period = None,
    undirected: Undirected = None,
    horizon: Horizon = None,
    time_limit: Limit = None,
    steps: Steps = None,
    seed: Seed = None,
    config: Config = None,
    report: Annotated[Path | None, typer.Option(help="A folder for a report page.")] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Learn from a table of readings and a table of edges; write a model.

    The table is long (unique_id, ds, y, or other names), wide (a column of stamps, then one for each sensor) or a
    matrix without names. If training is interrupted, the same command goes on from where it was.

    Example: gde fit readings.csv --edges roads.csv -o model.gde

    Example: gde fit speeds.csv --id station --time when --value speed --zone Europe/Paris --coordinates stations.csv

    Example: gde fit --sbml model.xml runs.csv -o model.gde
    """
    options = _options(
        config, model=model, id=id_, time=time, values=value, known=known, static=static, zone=zone, period=period,
        undirected=undirected, horizon=horizon, time_limit=time_limit, steps=steps, seed=seed,
    )  # fmt: skip
    _check_out(out)
    if sbml is not None:
        from neuralgde._cli_reactions import fit_reactions

        given = {**options, "edges": edges, "coordinates": coordinates, "report": report}
        return fit_reactions(sbml, series, out, given, as_json=as_json, quiet=quiet)
    checkpoint = out.with_name(out.name + ".ckpt")
    forecaster = _forecaster(options)
    with _interruptible(checkpoint):
        forecaster.fit(
            series, edges, coordinates=coordinates, checkpoint=checkpoint, say=_say(quiet or as_json),
            progress=not (quiet or as_json),
        )  # fmt: skip
    forecaster.save(out)
    for left in (checkpoint, checkpoint.with_name(checkpoint.name + ".prev")):
        left.unlink(missing_ok=True)
    if report is not None:
        from neuralgde.forecast import fit_page

        _write_page(report, fit_page(f"{out.name}: {forecaster.config.model}", forecaster.fitted))
    summary = {"file": str(out), **forecaster.summary}
    if as_json:
        typer.echo(json.dumps(summary))
    elif not quiet:
        _print_fit(out, summary)


def forecast(
    model: Annotated[Path, typer.Argument(help="A model that `gde fit` wrote.")],
    at: Annotated[list[str] | None, typer.Option("--at", help="A time to forecast; may be given again.")] = None,
    every: Annotated[str | None, typer.Option(help="The time between forecasts: 5min, or a number.")] = None,
    until: Annotated[
        str | None, typer.Option(help="The last time: a date, or how long after the last reading.")
    ] = None,
    history: Annotated[
        str | None, typer.Option(help="Readings since the fit, as a table; - for standard input.")
    ] = None,
    future: Annotated[str | None, typer.Option(help="Columns known in advance, at the times asked for.")] = None,
    edges: Annotated[str | None, typer.Option(help="All edges, where sensors in --history are new.")] = None,
    level: Annotated[list[float] | None, typer.Option(help="Percent of an interval; may be given again.")] = None,
    quantile: Annotated[list[float] | None, typer.Option(help="A probability; may be given again.")] = None,
    samples: Annotated[int | None, typer.Option(help="Joint paths to draw.")] = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="The table to write: .csv, .parquet, or -.")] = Path("-"),
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Forecast at any times, with intervals, from a model and what came since.

    Example: gde forecast model.gde --every 5min --until 2h

    Example: gde forecast model.gde --history today.csv --at "2024-03-31 08:05" --level 90 -o forecast.csv
    """
    from neuralgde.data import check_table_file, read_table, write_table
    from neuralgde.forecast import Forecaster, forecast_columns, stamp_name

    check_table_file(out)
    forecaster = Forecaster.load(model)
    # Read once: standard input cannot be read again.
    since = None if history is None else read_table(history, "history")
    times = _times(forecaster, at, every, until, since)
    made = forecaster.forecasts(times, since, future=future, edges=edges)
    columns = forecast_columns(made, level or (80.0, 95.0), quantile, samples)
    clock = made.fitted.readings.clock
    if as_json:
        from neuralgde.data import format_stamps

        shown = {k: format_stamps(v, clock) if k == stamp_name(made.fitted) else v.tolist() for k, v in columns.items()}
        typer.echo(json.dumps({"coverage": forecaster.summary["coverage"], "forecast": shown}))
    if not as_json or str(out) != "-":
        write_table(out, columns, clock, stamp_name(made.fitted))
    if not quiet and not as_json:
        measured = forecaster.coverage[90]
        typer.echo(
            f"{len(made.stamps)} time(s), {len(made.fitted.readings.ids)} sensor(s). On days set aside, 90 % intervals "
            f"covered {measured:.1f} %.",
            err=True,
        )


def backtest(
    series: Series,
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder to write to.")] = Path("backtest"),
    edges: Edges = None,
    coordinates: Coordinates = None,
    saved: Annotated[Path | None, typer.Option("--with", help="A saved model, tested on what came after it.")] = None,
    test: Annotated[float, typer.Option(help="The share of the days, the last ones, to test on.")] = 0.15,
    at: Annotated[
        list[str] | None, typer.Option("--ahead", help="A horizon, such as 15min; may be given again.")
    ] = None,
    model: ModelName = None,
    id_: Id = None,
    time: Time = None,
    value: Value = None,
    known: Known = None,
    static: Static = None,
    zone: Zone = None,
    period: Period = None,
    undirected: Undirected = None,
    horizon: Horizon = None,
    time_limit: Limit = None,
    steps: Steps = None,
    seed: Seed = None,
    config: Config = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Forecast the last days from rolling origins, and hold it against what came, per sensor and horizon.

    Writes backtest.csv and a report page.

    Example: gde backtest readings.csv --edges roads.csv -o backtest

    Example: gde backtest new.csv --with model.gde --ahead 15min --ahead 1h
    """
    from neuralgde.data import write_table
    from neuralgde.forecast import Forecaster, backtest_page

    options = _options(
        config, model=model, id=id_, time=time, values=value, known=known, static=static, zone=zone, period=period,
        undirected=undirected, horizon=horizon, time_limit=time_limit, steps=steps, seed=seed,
    )  # fmt: skip
    _make_folder(out)
    forecaster = _forecaster(options) if saved is None else Forecaster.load(saved)
    fitting: dict[str, Any] = {}
    if saved is None:
        fitting = {
            "edges": edges, "coordinates": coordinates, "test": test, "say": _say(quiet or as_json),
            "progress": not (quiet or as_json),
        }  # fmt: skip
    found = forecaster.backtest(series, horizons=[length(h, "--ahead") for h in at] if at else None, **fitting)
    write_table(out / "backtest.csv", found.table(), found.fitted.readings.clock, stamps="")
    _write_page(out, backtest_page(f"Backtest of {found.fitted.config.model} on {Path(series).name}", found))
    if as_json:
        typer.echo(json.dumps(_scores(found)))
    elif not quiet:
        _print_backtest(found, out)


def length(text: str, name: str) -> float:
    """A length of time, such as 5min, in seconds; a plain number is itself."""
    match = re.fullmatch(r"\s*([0-9]*\.?[0-9]+)\s*([a-z]*)\s*", text.lower())
    if match is None or match[2] not in _UNITS or float(match[1]) <= 0:
        raise InputError(f"{name}: expected a length of time such as 5min, 2h, 1d, or a positive number, got {text!r}.")
    return float(match[1]) * _UNITS[match[2]]


def _options(config: Path | None, **given: Any) -> dict[str, Any]:
    """Options of a TOML file, and over them those of the command line; lengths of time as numbers."""
    options: dict[str, Any] = {}
    if config is not None:
        import tomllib

        try:
            options = tomllib.loads(config.read_text())
        except OSError as error:
            raise InputError(f"--config: {config} cannot be read: {error.strerror}.") from error
        except tomllib.TOMLDecodeError as error:
            raise InputError(f"--config: {config}: not TOML: {error}.") from error
    options |= {name: value for name, value in given.items() if value is not None and value != []}
    for name in ("period", "horizon", "time_limit"):
        if isinstance(options.get(name), str):
            options[name] = length(options[name], f"--{name.replace('_', '-')}")
    return options


def _forecaster(options: dict[str, Any]) -> "Forecaster":
    from neuralgde.forecast import Forecaster

    return Forecaster(**options)


def _times(forecaster: "Forecaster", at: Any, every: str | None, until: str | None, history: Any) -> Any:
    """The times asked for: those of --at, or every so often until a time."""
    if bool(at) == bool(every):
        raise InputError("--at, --every: expected one of the two: times to forecast, or how often and --until when.")
    if at:
        if forecaster.fitted.readings.clock.dates:
            return at
        try:
            return [float(t) for t in at]
        except ValueError:
            raise InputError(f"--at: expected numbers, as the stamps of the model's table, got {at}.") from None
    if until is None or every is None:
        raise InputError("--until: expected the last time, such as 2h or a date, with --every.")
    try:
        end: float | str = length(until, "--until")
    except InputError:
        end = until
    return forecaster.times(length(every, "--every"), end, history)


def _check_out(out: Path) -> None:
    if out.is_dir():
        raise InputError(f"--out: {out} is a folder. Add a file name to it, such as model.gde.")
    if out.suffix != ".gde":
        raise InputError(f"--out: expected a name that ends in .gde, got {out}.")
    _make_folder(out.parent)


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"--out: {folder} cannot be made a folder: {error.strerror}. Choose another.") from error


@contextlib.contextmanager
def _interruptible(checkpoint: Path) -> "Iterator[None]":
    try:
        yield
    except KeyboardInterrupt:
        where = (
            f" What was learned is in {checkpoint}: the same command goes on from there." if checkpoint.exists() else ""
        )
        typer.echo(f"gde: interrupted.{where}", err=True)
        sys.exit(1)


def _say(quiet: bool) -> "Callable[[str], None]":
    return (lambda _: None) if quiet else (lambda text: typer.echo(text, err=True))


def _write_page(folder: Path, page: Any) -> None:
    from neuralgde.report import write_page, write_page_data

    _make_folder(folder)
    write_page_data(folder, page)
    write_page(folder / "report.html", page)


def _print_fit(out: Path, summary: dict[str, Any]) -> None:
    for note in summary["notes"]:
        typer.echo(f"note: {note}")
    typer.echo(
        f"{out}: {summary['model']} of {summary['sensors']} sensor(s) and {summary['edges']} edges, a reading each "
        f"{summary['step']}, in {summary['seconds']:.0f} s"
    )
    said = ", ".join(f"{level} % covered {value} %" for level, value in summary["coverage"].items())
    typer.echo(f"intervals on days set aside ({summary['coverage_points']} readings): {said}")
    typer.echo(
        f"next: gde forecast {out} --every {summary['step'].replace(' ', '')} --until "
        f"{summary['horizon'].replace(' ', '')}"
    )


def _scores(found: Any) -> dict[str, Any]:
    from neuralgde.forecast import BACKTEST_METRICS

    def named(scores: Any) -> dict[str, Any]:
        return {
            model: {metric: None if v != v else float(v) for metric, v in zip(BACKTEST_METRICS, row, strict=True)}
            for model, row in zip(found.models, scores, strict=True)
        }

    by_horizon = found.by_horizon()
    return {
        "readings": found.points,
        "overall": named(found.scores()),
        "by_horizon": {name: named(by_horizon[..., k]) for k, name in enumerate(found.names)},
    }


def _print_backtest(found: Any, out: Path) -> None:
    from rich.console import Console

    from neuralgde.forecast import backtest_table

    for note in found.fitted.notes:
        typer.echo(f"note: {note}")
    # What is no terminal has no width of its own, and tables need some.
    Console(width=None if sys.stdout.isatty() else 110).print(backtest_table(found))
    typer.echo(f"{out / 'backtest.csv'}: every sensor and horizon; {out / 'report.html'}: to look at")


def register(app: typer.Typer) -> None:
    """Add the commands to `gde`."""
    for command in (fit, forecast, backtest):
        app.command()(command)
