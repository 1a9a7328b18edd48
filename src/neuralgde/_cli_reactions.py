"""`gde fit --sbml`: the latent model of a reaction network, from stochastic runs of it."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import typer

from neuralgde._cli_options import refuse


def fit_reactions(
    sbml: Path, runs: str, out: Path, options: dict[str, Any], *, as_json: bool = False, quiet: bool = False
) -> None:
    """Fit, save, and tell how good it is; of the options of `gde fit` it takes steps and seed."""
    refuse({name: value for name, value in options.items() if name not in ("steps", "seed")}, "--sbml")
    from neuralgde.forecast import ReactionForecaster, ReactionTraining
    from neuralgde.simulate import read_reactions, read_sbml

    network = read_sbml(sbml)
    times, counts = read_reactions(runs, network.species)
    training = ReactionTraining()
    if options.get("steps") is not None:
        steps = options["steps"]
        training = dataclasses.replace(training, steps=steps, looks=max(1, min(training.looks, steps)))
    fitted = ReactionForecaster.fit(
        network, times, counts, training=training, seed=options.get("seed") or 0,
        progress=not (quiet or as_json),
    )  # fmt: skip
    fitted.save(out, sbml)
    summary = {"file": str(out), "species": list(network.species), "runs": len(counts), **fitted.scores}
    if as_json:
        typer.echo(json.dumps(summary))
    elif not quiet:
        typer.echo(
            f"{out}: {len(network.species)} species and {len(network.reactions)} reactions, {len(counts)} runs. CRPS "
            f"of second halves {summary['crps']:.4f} of the range, persistence {summary['crps_persistence']:.4f}; 90 % "
            f"intervals covered {100 * summary['coverage_90']:.1f} % before correction."
        )
        typer.echo("In Python: ReactionForecaster.load(path), then .forecast, .attention and .knock_out.")
