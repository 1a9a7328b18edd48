"""The figures of the traffic experiment."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from ..data import Windows
from ..report import PALETTE, new_figure, save_figure
from ..train import take_seed
from ._traffic_models import MODELS
from ._traffic_protocol import TrafficTask
from ._traffic_training import Outcome, Trained

if TYPE_CHECKING:
    from .traffic import TrafficConfig

# A model has one colour in all figures.
_COLOURS: dict[str, str] = dict(zip(MODELS, (PALETTE[5], PALETTE[6], PALETTE[4], PALETTE[1], PALETTE[2]), strict=True))
_NAIVE = {"persistence": ":", "ridge": "--", "ridge per sensor": "-.", "ridge and days alike": (0, (5, 1, 1, 1, 1, 1))}
# Parts of an interval that the state is drawn at, and hours that are drawn.
_POINTS = 8
_FROM, _UNTIL = 14.0, 20.0


def draw_figures(
    folder: Path, task: TrafficTask, config: "TrafficConfig", outcomes: Sequence[Outcome], gaps: dict[str, Any]
) -> None:
    """Forecasts along an afternoon with the latent path, validation curves, the gaps, and errors by gap."""
    _gap_histogram(folder / "gaps.png", task, config.keeps)
    if outcomes:
        _curves(folder / "training.png", outcomes)
    _errors(folder / "error_by_gap.png", gaps)
    continuous = [o for o in outcomes if o.model.startswith("GCDE")]
    if continuous:
        # The paper draws the one at 50 %.
        chosen = min(reversed(continuous), key=lambda o: abs(float(o.setting.split()[1]) - 0.5))
        _afternoon(folder / "forecasts.png", task, chosen)


def _gap_histogram(path: Path, task: TrafficTask, keeps: Sequence[float]) -> None:
    figure, ax = new_figure()
    for keep, colour in zip(keeps, (PALETTE[0], PALETTE[1], PALETTE[3], PALETTE[2]), strict=False):
        gaps = np.asarray(task.windows("test", keep, seed=0).gaps)[:, -1]
        counts = np.bincount(np.round(gaps).astype(int), minlength=2)
        ax.plot(np.arange(1, len(counts)), counts[1:] / counts.sum(), "o-", color=colour, label=f"keep {keep:g}", ms=4)
    ax.set(xlabel="time between snapshots, in 5 minutes", ylabel="share", title="Time gaps of the test days")
    ax.legend()
    save_figure(figure, path)


def _curves(path: Path, outcomes: Sequence[Outcome]) -> None:
    settings = list(dict.fromkeys(o.setting for o in outcomes))
    figure, axes = new_figure(1, len(settings), size=(3.2 * len(settings) + 2.0, 3.6), squeeze=False)
    for ax, setting in zip(axes[0], settings, strict=True):
        for o in outcomes:
            if o.setting == setting:
                ax.plot(o.epochs, o.curve.mean(1), color=_COLOURS[o.model], label=o.model)
        ax.set(xlabel="epochs", title=setting, yscale="log")
    axes[0, 0].set_ylabel("validation RMSE, mean over sensors, mph")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right center", fontsize=8)
    save_figure(figure, path)


def _errors(path: Path, gaps: dict[str, Any]) -> None:
    longest = max(gaps, key=lambda setting: max(max(found) for found in gaps[setting].values()))
    figure, ax = new_figure()
    for name, found in gaps[longest].items():
        if name in _NAIVE or name in _COLOURS:
            ax.plot(
                list(found), [error for error, _ in found.values()], linestyle=_NAIVE.get(name, "-"), label=name,
                color=_COLOURS.get(name, "black"),
            )  # fmt: skip
    ax.set(xlabel="time since the last observation, in 5 minutes", ylabel="RMSE, mph", title=f"Error by gap, {longest}")
    ax.legend(fontsize=8)
    save_figure(figure, path)


def _afternoon(path: Path, task: TrafficTask, outcome: Outcome) -> None:
    """The first test day: truth, what is kept of it, the forecast between, and some latent features."""
    keep = float(outcome.setting.split()[1])
    windows = task.windows("test", keep, seed=0)
    hours = np.asarray(windows.times[:, -1]) * 24 / windows.period
    day = np.cumsum(np.diff(hours, prepend=hours[0]) < 0)
    windows = windows[(day == 0) & (hours >= _FROM) & (hours < _UNTIL)]
    # The sensor whose speed falls most is the one worth looking at.
    sensor = int(np.argmax(np.ptp(np.asarray(windows.targets[:, 0, :, 0]), axis=0)))
    times, forecast, latent = _paths(outcome.trained, windows, task.profile)
    times = times * 24 / windows.period

    figure, (top, bottom) = new_figure(2, 1, size=(7.0, 5.6), sharex=True, height_ratios=(2, 1))
    clock = np.arange(windows.period) * 24 / windows.period
    inside = (clock >= _FROM) & (clock <= _UNTIL)
    top.plot(clock[inside], task.test.values[: windows.period, sensor][inside], color="0.7", label="truth")
    seen = np.asarray(windows.times[:, -1]) * 24 / windows.period
    top.plot(seen, windows.values[:, -1, sensor, 0], "o", color="black", ms=3, label="kept")
    for k in range(len(windows)):
        top.plot(times[k], forecast[k, :, sensor], color=_COLOURS[outcome.model], lw=1.2,
                 label="forecast until the next one" if k == 0 else None)  # fmt: skip
    features = np.argsort(-np.ptp(latent[:, :, sensor], axis=(0, 1)))[:3]
    for feature, colour in zip(features, PALETTE[1:4], strict=True):
        for k in range(len(windows)):
            bottom.plot(times[k], latent[k, :, sensor, feature], color=colour, lw=1.0)
    top.set(ylabel="speed, mph", title=f"{outcome.model}, {outcome.setting}: sensor {task.test.sensors[sensor]}")
    bottom.set(xlabel="hour of the first test day", ylabel="latent features")
    top.legend(fontsize=8)
    save_figure(figure, path)


def _paths(
    trained: Trained, windows: Windows, profile: Float[np.ndarray, "slots sensors"]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Times from each last observation to the next one, and the forecast and the latent features of all nodes there."""
    share = np.linspace(1e-3, 1, _POINTS, dtype=windows.times.dtype)
    last, after = np.asarray(windows.times[:, -1:]), np.asarray(windows.query_times[:, :1])
    times = last + (after - last) * share
    nowhere = np.zeros((len(windows), _POINTS, *windows.values.shape[2:]), windows.values.dtype)
    # The mean day between two of its times is on a straight line.
    slot, part = np.divmod(times, 1)
    slot, part = slot.astype(int), part[..., None]
    base = (1 - part) * profile[slot % windows.period] + part * profile[(slot + 1) % windows.period]
    asked = eqx.tree_at(
        lambda w: (w.query_times, w.targets, w.target_mask, w.query_base),
        windows,
        (times, nowhere, nowhere.astype(bool), base[..., None].astype(times.dtype)),
    )
    forecast = trained(asked)[0]
    shown, inputs = trained.view.show(eqx.tree_at(lambda w: w.times, asked, jnp.asarray(asked.times)))
    model = take_seed(trained.models, 0)
    states = eqx.filter_jit(lambda m, s, t: m.solve(s, t).states)(
        model, shown.stream(trained.graph, inputs), jnp.asarray(times)
    )
    return times, forecast, np.asarray(states)[..., : model.jump.layout.hidden]
