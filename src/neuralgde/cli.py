"""The command `gde`."""

import os
import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from neuralgde import _cli_forecast
from neuralgde._cli_options import make_folder
from neuralgde._errors import CheckpointError, InputError, SolveError, unknown_name

if TYPE_CHECKING:
    from rich.console import Console

app = typer.Typer(
    name="gde",
    help="""Neural graph differential equations: models of systems on graphs in continuous time.

    Example: gde demo
    """,
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
)


def _print_version(wanted: bool) -> bool:
    if wanted:
        from neuralgde import __version__

        typer.echo(f"neuralgde {__version__}")
        raise typer.Exit
    return wanted


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    pass


@app.command()
def demo(
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder to write to.")] = Path("runs/demo"),
    seed: Annotated[int, typer.Option(help="What decides the roads, the traffic and the model.")] = 0,
) -> None:
    """Do the main job on simulated traffic: fit, forecast a day with intervals, write a page. Under three minutes.

    Example: gde demo -o runs/demo
    """
    # Made before the work: a folder that cannot be written should not cost a run.
    make_folder(out)
    # Commands import what they need when they run: JAX would make even `gde --help` slow.
    typer.echo("neuralgde: from a table of readings and a table of edges to forecasts (loading JAX)")
    from neuralgde.experiments.demo import run

    run(out, seed=seed, console=_console())


_cli_forecast.register(app)


# The paper's experiments, by the name they are called with; each module has `run(folder, *, seeds, quick, console)`.
_EXPERIMENTS = {"multi-agent": "multi_agent", "traffic": "traffic", "repressilator": "repressilator", "cora": "cora"}
# How many seeds to train by default, in full and with --quick.
_SEEDS = {"multi-agent": (10, 2), "traffic": (3, 1), "repressilator": (3, 1), "cora": (10, 2)}


@app.command()
def reproduce(
    experiment: Annotated[str, typer.Argument(help=f"One of: {', '.join(_EXPERIMENTS)}.", show_default=False)],
    seeds: Annotated[
        int | None,
        typer.Option(
            min=1, help="How many seeds to train.", show_default="10, traffic and repressilator 3; fewer with --quick"
        ),
    ] = None,
    keep: Annotated[
        str | None,
        typer.Option(help="traffic: the shares of snapshots to keep.", show_default="1,0.7,0.5,0.3; 0.3 with --quick"),
    ] = None,
    models: Annotated[
        str | None,
        typer.Option(
            help="traffic: what to train, of GRU, GCGRU, GCDE-GRU, GCGRU+, GCDE-GRU+ and England.",
            show_default="all; no GRU with --quick",
        ),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Small enough to look at in a minute or two.")] = False,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="The folder to write to.", show_default="runs/EXPERIMENT"),
    ] = None,
) -> None:
    """Run an experiment of the paper: tables here, `result.json` and figures in a folder.

    Example: gde reproduce multi-agent --quick -o runs/look
    """
    if experiment not in _EXPERIMENTS:
        raise InputError(unknown_name("experiment", experiment, _EXPERIMENTS))
    for option, given in (("--keep", keep), ("--models", models)):
        if given is not None and experiment != "traffic":
            raise InputError(
                f"{option}: it is an option of traffic, and {experiment} has no such choice. Leave it out."
            )
    options = {}
    if keep is not None:
        options["keeps"] = _shares(keep)
    if models is not None:
        from neuralgde.experiments.traffic import TrafficConfig, only

        names = [name.strip() for name in models.split(",")]
        options["config"] = only(TrafficConfig.quick() if quick else TrafficConfig(), names)
    folder = out or Path("runs") / experiment
    make_folder(folder)
    module = import_module(f"neuralgde.experiments.{_EXPERIMENTS[experiment]}")
    module.run(folder, seeds=seeds or _SEEDS[experiment][quick], quick=quick, console=_console(), **options)


def _shares(keep: str) -> tuple[float, ...]:
    """The numbers of a list such as 1,0.7."""
    try:
        shares = tuple(float(part) for part in keep.split(","))
    except ValueError:
        shares = ()
    if not shares or not all(0 < share <= 1 for share in shares):
        raise InputError(f"--keep: expected shares above 0, up to 1, separated by commas, such as 1,0.3, got {keep!r}.")
    return shares


simulate = typer.Typer(
    help="""Simulate a system and write its trajectories to a file.

    Example: gde simulate freeway -o freeway.csv
    """,
    no_args_is_help=True,
)
app.add_typer(simulate, name="simulate")


@simulate.command("multi-agent")
def simulate_multi_agent(
    out: Annotated[Path, typer.Option("--out", "-o", help="The file to write: .csv or .npz.")],
    runs: Annotated[int, typer.Option(help="How many trajectories.")] = 1,
    particles: Annotated[int, typer.Option(help="How many particles.")] = 10,
    duration: Annotated[float, typer.Option(help="The length of a trajectory, in s.")] = 5.0,
    dt: Annotated[float, typer.Option(help="The time between states, in s.")] = 1.95e-3,
    alpha: Annotated[float, typer.Option(help="How stiff springs are.")] = 1.0,
    beta: Annotated[float, typer.Option(help="How strong drag is.")] = 1.0,
    radius: Annotated[float, typer.Option(help="Particles meet at half of it.")] = 1.0,
    sign: Annotated[
        str, typer.Option(help="'dissipative', or 'paper' for the appendix's literal sign.")
    ] = "dissipative",
    seed: Annotated[int, typer.Option(help="What decides the initial states.")] = 0,
) -> None:
    """Particles that meet as springs with drag. A CSV has the columns run, time, particle, x, y, vx, vy.

    Example: gde simulate multi-agent --runs 20 -o particles.csv
    """
    import jax

    from neuralgde.simulate import ParticleSystem, check_particle_file, simulate_particles, write_particles

    # Checked before the work: a wrong name should not cost a simulation.
    check_particle_file(out)
    system = ParticleSystem(alpha=alpha, beta=beta, radius=radius, sign=sign)
    made = simulate_particles(
        system, runs=runs, particles=particles, duration=duration, dt=dt, key=jax.random.key(seed)
    )
    write_particles(made, out)
    typer.echo(f"{out}: {runs} run(s) of {particles} particles, {made.times.shape[0]} times")


@simulate.command("freeway")
def simulate_freeway(
    out: Annotated[Path, typer.Option("--out", "-o", help="The table to write: .csv.")],
    days: Annotated[int, typer.Option(help="How many days.")] = 14,
    corridors: Annotated[int, typer.Option(help="How many freeways, each with a carriageway either way.")] = 4,
    miles: Annotated[float, typer.Option(help="The length of each.")] = 12.0,
    incidents: Annotated[float, typer.Option(help="How many to expect a day.")] = 3.0,
    noise: Annotated[float, typer.Option(help="The standard deviation of sensors' errors, in mph.")] = 1.0,
    missing: Annotated[float, typer.Option(help="The share of readings that are missing.")] = 0.0,
    start: Annotated[str, typer.Option(help="The first day.")] = "2024-01-01",
    weekends: Annotated[bool, typer.Option(help="Whether Saturdays and Sundays count.")] = True,
    seed: Annotated[int, typer.Option(help="What decides the roads, the traffic and the incidents.")] = 0,
) -> None:
    """Speeds on freeways every 5 minutes, by the cell transmission model: columns unique_id, ds, y.

    A second table, FILE-edges.csv, has the columns source, target, weight.

    Example: gde simulate freeway --days 7 -o freeway.csv
    """
    from neuralgde.simulate import DemandConfig, freeway_files, freeway_network, simulate_freeway, write_freeway

    freeway_files(out)
    network = freeway_network(corridors, miles=miles, seed=seed)
    run = simulate_freeway(
        network, days=days, start=start, weekends=weekends, demand=DemandConfig(incidents=incidents), noise=noise,
        missing=missing, seed=seed,
    )  # fmt: skip
    series, edges = write_freeway(run, out)
    typer.echo(
        f"{series}: {days} day(s) of {len(network.sensors)} sensors; {edges}: {2 * len(network.neighbours)} edges"
    )


_Runs = Annotated[int, typer.Option(min=1, help="How many runs.")]
_Every = Annotated[float, typer.Option(help="The time between two lines of a run.")]
_Method = Annotated[str, typer.Option(help="'ssa', exact, or 'tau', which leaps over many reactions at a time.")]
_Epsilon = Annotated[float, typer.Option(help="The share by which rates may change in a leap.")]
_Seed = Annotated[int, typer.Option(help="What decides the runs.")]
_RunsOut = Annotated[Path, typer.Option("--out", "-o", help="The file to write: .csv or .npz.")]


@simulate.command("sbml")
def simulate_sbml(
    model: Annotated[Path, typer.Argument(help="An SBML file.", show_default=False)],
    until: Annotated[float, typer.Option(help="The last time; runs start at 0.")],
    out: _RunsOut,
    runs: _Runs = 1,
    every: _Every = 1.0,
    method: _Method = "ssa",
    epsilon: _Epsilon = 0.03,
    seed: _Seed = 0,
) -> None:
    """Stochastic runs of a reaction network. A CSV has the columns run, time, then the species, as amounts.

    Example: gde simulate sbml model.xml --runs 1000 --until 50 --every 1 -o runs.csv
    """
    from neuralgde.simulate import check_reaction_file, read_sbml

    check_reaction_file(out)
    _simulate_network(read_sbml(model), until, out, runs, every, method, epsilon, seed)


@simulate.command("repressilator")
def simulate_repressilator(
    out: _RunsOut,
    until: Annotated[float, typer.Option(help="The last time, in minutes.")] = 300.0,
    runs: _Runs = 1,
    every: _Every = 1.0,
    method: _Method = "tau",
    epsilon: _Epsilon = 0.03,
    seed: _Seed = 0,
) -> None:
    """Stochastic runs of three genes in a ring, each repressing the next: proteins PX, PY, PZ, then mRNAs X, Y, Z.

    Example: gde simulate repressilator --runs 10 -o runs.csv
    """
    from neuralgde.simulate import check_reaction_file, repressilator

    check_reaction_file(out)
    _simulate_network(repressilator(), until, out, runs, every, method, epsilon, seed)


def _simulate_network(network, until, out, runs, every, method, epsilon, seed) -> None:
    import jax
    import numpy as np
    from rich.console import Console
    from rich.progress import Progress

    from neuralgde.simulate import simulate_reactions, write_reactions

    if not 0 < every <= until:
        raise InputError(f"--every: expected a time between 0 and --until {until:g}, got {every:g}.")
    times = np.arange(np.floor(until / every * (1 + 1e-12)) + 1) * every
    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("compiling, then simulating", total=1.0)
        made = simulate_reactions(
            network, times, runs=runs, method=method, epsilon=epsilon, key=jax.random.key(seed),
            progress=lambda share: bar.update(task, completed=share),
        )  # fmt: skip
    write_reactions(made, out)
    typer.echo(f"{out}: {runs} run(s) of {len(network.species)} species, {len(times)} times")


@app.command()
def report(
    folder: Annotated[Path, typer.Argument(help="The folder of a run.", show_default=False)],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="The page to write.", show_default="FOLDER/report.html")
    ] = None,
) -> None:
    """Write the page of a run: one HTML file with its charts and tables, which needs no network.

    Folders of gde demo, gde backtest and gde reproduce have what it needs.

    Example: gde report runs/multi-agent
    """
    from neuralgde.report import report_folder

    try:
        path = report_folder(folder, out)
    except OSError as error:
        raise InputError(f"{error.filename}: the page cannot be written there: {error.strerror}.") from error
    typer.echo(f"{path}: {path.stat().st_size / 1e6:.1f} MB; open it in a browser")


def _console() -> "Console":
    """Where experiments print. What is no terminal has no width of its own, and tables need some."""
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else 110)


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
