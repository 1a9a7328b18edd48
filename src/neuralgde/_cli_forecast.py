"""The commands for one's own tables: `gde fit`, `gde forecast` and `gde backtest`."""

import contextlib
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from neuralgde._cli_options import (
    Coordinates,
    Edges,
    Json,
    Quiet,
    Series,
    check_folder,
    fits_a_model,
    has_unit,
    length,
    make_folder,
    read_options,
    refuse,
    refuse_units,
)
from neuralgde._errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from neuralgde.forecast import Forecaster


@fits_a_model
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
    report: Annotated[Path | None, typer.Option(help="A folder for a report page.")] = None,
    as_json: Json = False,
    quiet: Quiet = False,
    **options: Any,
) -> None:
    """Learn from a table of readings and a table of edges; write a model.

    The table is long (unique_id, ds, y, or other names), wide (stamps, then a column a sensor), or a matrix.

    If training is interrupted (Ctrl-C), the same command goes on from where it was.

    Example: gde fit readings.csv --edges roads.csv -o model.gde

    Example: gde fit speeds.csv --id station --time when --value speed --zone Europe/Paris --coordinates stations.csv

    Example: gde fit --sbml model.xml runs.csv -o model.gde
    """
    options, units = read_options(options)
    _check_out(out)
    if report is not None:
        check_folder(report, "--report")
    if sbml is not None:
        from neuralgde._cli_reactions import fit_reactions

        given = {**options, "edges": edges, "coordinates": coordinates, "report": report}
        return fit_reactions(sbml, series, out, given, as_json=as_json, quiet=quiet)
    checkpoint = out.with_name(out.name + ".ckpt")
    forecaster = _forecaster(options)
    table = _read(series, forecaster, units)
    with _interruptible(checkpoint):
        forecaster.fit(
            table, edges, coordinates=coordinates, checkpoint=checkpoint, say=_say(quiet or as_json),
            progress=not (quiet or as_json),
        )  # fmt: skip
    forecaster.save(out)
    if forecaster.fitted.training:
        # Regressions leave that of an interrupted network alone: they did not go on from it.
        for left in (checkpoint, checkpoint.with_name(checkpoint.name + ".prev")):
            left.unlink(missing_ok=True)
    if report is not None:
        from neuralgde.forecast import fit_page

        _write_page(report, fit_page(f"{out.name}: {forecaster.config.model}", forecaster.fitted), "--report")
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
        farthest = made.fitted.shape.horizon * clock.step
        if (made.stamps - made.origins > 1.01 * farthest).any():
            typer.echo(
                f"note: the model was fitted for up to {clock.say(farthest)} ahead; later times are forecast as that "
                "far. Fit with a longer --horizon for more.",
                err=True,
            )
        measured = forecaster.coverage[90]
        typer.echo(
            f"{len(made.stamps)} time(s), {len(made.fitted.readings.ids)} sensor(s). On days set aside, 90 % intervals "
            f"covered {measured:.1f} %.",
            err=True,
        )


@fits_a_model
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
    as_json: Json = False,
    quiet: Quiet = False,
    **options: Any,
) -> None:
    """Forecast the last days from rolling origins, and hold it against what came, per sensor and horizon.

    Writes backtest.csv and a report page.

    Example: gde backtest readings.csv --edges roads.csv -o backtest

    Example: gde backtest new.csv --with model.gde --ahead 15min --ahead 1h
    """
    from neuralgde.data import write_table
    from neuralgde.forecast import Forecaster, backtest_page

    options, units = read_options(options)
    if ahead := [h for h in at or () if has_unit(h)]:
        units["--ahead"] = ahead[0]
    if saved is not None:
        refuse({"edges": edges, "coordinates": coordinates, **options}, "--with, whose model has its own")
    check_folder(out)
    forecaster = _forecaster(options) if saved is None else Forecaster.load(saved)
    fitting: dict[str, Any] = {}
    if saved is None:
        fitting = {
            "edges": edges, "coordinates": coordinates, "test": test, "say": _say(quiet or as_json),
            "progress": not (quiet or as_json),
        }  # fmt: skip
    horizons = [length(h, "--ahead") for h in at] if at else None
    found = forecaster.backtest(_read(series, forecaster, units), horizons=horizons, **fitting)
    write_table(out / "backtest.csv", found.table(), found.fitted.readings.clock, stamps="")
    _write_page(out, backtest_page(f"Backtest of {found.fitted.config.model} on {Path(series).name}", found))
    if as_json:
        typer.echo(json.dumps(_scores(found)))
    elif not quiet:
        _print_backtest(found, out)


def _forecaster(options: dict[str, Any]) -> "Forecaster":
    from neuralgde.forecast import Forecaster

    return Forecaster(**options)


def _read(series: str, forecaster: "Forecaster", units: dict[str, str]) -> Any:
    """The table of readings, refused where lengths were given with units and its stamps are numbers."""
    from neuralgde.data import Columns, has_dates, read_table

    table, config = read_table(series, "series"), forecaster.config
    if units and not has_dates(table, Columns(config.id, config.time, config.values, config.known, config.static)):
        refuse_units(units)
    return table


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
    units = {"--every": every}
    step = length(every, "--every")
    try:
        end: float | str = length(until, "--until")
        units["--until"] = until
    except InputError:
        end = until
    if not forecaster.fitted.readings.clock.dates:
        refuse_units({name: text for name, text in units.items() if has_unit(text)})
    return forecaster.times(step, end, history)


def _check_out(out: Path) -> None:
    if out.is_dir():
        raise InputError(f"--out: {out} is a folder. Add a file name to it, such as model.gde.")
    if out.suffix != ".gde":
        raise InputError(f"--out: expected a name that ends in .gde, got {out}.")
    check_folder(out.parent)


@contextlib.contextmanager
def _interruptible(checkpoint: Path) -> "Iterator[None]":
    try:
        yield
    except KeyboardInterrupt:
        said = "Nothing was learned yet."
        if checkpoint.exists():
            said = f"What was learned is in {checkpoint}: the same command goes on from there."
        typer.echo(f"gde: interrupted. {said}", err=True)
        sys.exit(1)


def _say(quiet: bool) -> "Callable[[str], None]":
    return (lambda _: None) if quiet else (lambda text: typer.echo(text, err=True))


def _write_page(folder: Path, page: Any, option: str = "--out") -> None:
    from neuralgde.report import write_page, write_page_data

    make_folder(folder, option)
    try:
        write_page_data(folder, page)
        write_page(folder / "report.html", page)
    except OSError as error:
        raise InputError(f"{option}: the page cannot be written to {folder}: {error.strerror}.") from error


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
