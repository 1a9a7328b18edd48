"""Profile: what is to be expected of each sensor at any time, before anything is seen of the day."""

import dataclasses

import numpy as np
from jaxtyping import Float

from ..data import Clock, Readings

# Places of a cycle that have a mean of their own, at most; between them it is straight.
_MOST_BINS = 288
# Widths of the smoothing to choose from, in bins.
_WIDTHS = (0.0, 1.0, 2.0, 4.0, 8.0)
# What all days together count for beside those of one kind, in readings.
_PRIOR = 1.0


@dataclasses.dataclass(frozen=True)
class Profile:
    """The mean cycle of each sensor, for working days and weekends, and a linear effect of what is known in advance.

    - `cycle` (kinds, bins, sensors, variables).
    - `effect` (known, sensors, variables): of each known column, measured from `known_mean` in units of `known_std`.
    """

    cycle: Float[np.ndarray, "kinds bins sensors variables"]
    effect: Float[np.ndarray, "known sensors variables"]
    known_mean: Float[np.ndarray, " known"]
    known_std: Float[np.ndarray, " known"]

    def at(
        self, stamps: Float[np.ndarray, " times"], clock: Clock, known: Float[np.ndarray, "times sensors known"]
    ) -> Float[np.ndarray, "times sensors variables"]:
        """What is to be expected at stamps, with what is known of them; NaN there counts as the usual."""
        kinds, bins = self.cycle.shape[:2]
        kind = np.minimum(clock.day_kind(stamps), kinds - 1)
        low, share = _place(stamps, clock, bins)
        here, there = self.cycle[kind, low], self.cycle[kind, (low + 1) % bins]
        out = here + share[:, None, None] * (there - here)
        if len(self.effect):
            out = out + np.einsum("tnk,knv->tnv", self.usual(known), self.effect)
        return out

    def usual(self, known: Float[np.ndarray, "times sensors known"]) -> Float[np.ndarray, "times sensors known"]:
        """What is known, in units of its own, 0 where it is not."""
        return np.nan_to_num((known - self.known_mean) / self.known_std)


def fit_profile(train: Readings, validation: Readings) -> tuple[Profile, Float[np.ndarray, "rows sensors variables"]]:
    """The profile of the training rows, smoothed as suits the validation rows best; and for training, of each row what
    that of all other cycles says.

    A reading is closer to a mean that it had a part in than later ones will be: trained on that, models would trust the
    profile too much.
    """
    tried = []
    there = ~np.isnan(validation.values)
    sums, no_effect = _Sums.of(train), _no_effect(train)
    for width in _WIDTHS:
        profile = _with_effect(Profile(sums.cycle(width), *no_effect), train)
        error = (validation.values - profile.at(validation.stamps, validation.clock, validation.known))[there]
        tried.append((float(np.mean(error**2)) if error.size else width, width, profile))
        if profile.cycle.shape[1] == 1:
            break
    _, width, profile = min(tried, key=lambda entry: entry[:2])
    return profile, _of_others(profile, sums, train, width)


def _of_others(
    profile: Profile, everything: "_Sums", train: Readings, width: float
) -> Float[np.ndarray, "rows sensors variables"]:
    out = profile.at(train.stamps, train.clock, train.known)
    if profile.cycle.shape[1] == 1:
        # One mean of all rows: a row has next to no part in it.
        return out
    number = train.clock.cycle_number(train.stamps)
    for one in np.unique(number):
        own = np.flatnonzero(number == one)
        others = everything.without(train, own)
        part = train.rows(own)
        out[own] = dataclasses.replace(profile, cycle=others.cycle(width)).at(part.stamps, part.clock, part.known)
    return out


def _place(stamps: np.ndarray, clock: Clock, bins: int) -> tuple[np.ndarray, np.ndarray]:
    """The bin before each stamp, and how much of the way to the next one is behind it."""
    at = clock.phase(stamps) * (bins / clock.period)
    low = np.floor(at + 1e-9).astype(int)
    return low % bins, np.clip(at - low, 0, 1)


@dataclasses.dataclass(frozen=True)
class _Sums:
    """Sums and counts of readings at each place of the cycle, and the mean of each sensor."""

    total: Float[np.ndarray, "kinds bins sensors variables"]
    count: Float[np.ndarray, "kinds bins sensors variables"]
    mean: Float[np.ndarray, "sensors variables"]

    @staticmethod
    def of(train: Readings) -> "_Sums":
        clock, there = train.clock, ~np.isnan(train.values)
        kind = clock.day_kind(train.stamps)
        # A kind of day that was seen once or twice tells nothing that lasts.
        kinds = 2 if all(len(np.unique(clock.cycle_number(train.stamps[kind == k]))) >= 2 for k in (0, 1)) else 1
        mean = np.where(there, train.values, 0).sum(0) / np.maximum(there.sum(0), 1)
        shape = (kinds, min(clock.period, _MOST_BINS), *train.values.shape[1:])
        return _Sums(np.zeros(shape), np.zeros(shape), mean)._with(train, 1.0)

    def without(self, train: Readings, rows: np.ndarray) -> "_Sums":
        """These sums without some of the rows that they are of."""
        return self._with(train.rows(rows), -1.0)

    def _with(self, readings: Readings, times: float) -> "_Sums":
        total, count = self.total.copy(), self.count.copy()
        kinds, bins = total.shape[:2]
        kind = np.minimum(readings.clock.day_kind(readings.stamps), kinds - 1)
        low, share = _place(readings.stamps, readings.clock, bins)
        there = ~np.isnan(readings.values)
        filled = np.where(there, readings.values, 0)
        for place, weight in ((low, 1 - share), ((low + 1) % bins, share)):
            np.add.at(total, (kind, place), times * weight[:, None, None] * filled)
            np.add.at(count, (kind, place), times * weight[:, None, None] * there)
        return dataclasses.replace(self, total=total, count=count)

    def cycle(self, width: float) -> Float[np.ndarray, "kinds bins sensors variables"]:
        """The mean cycle of each kind, smoothed."""
        kernel = _kernel(self.total.shape[1], width)
        # What is left of a difference of sums may be a hair below 0.
        total, count = (np.moveaxis(np.tensordot(kernel, a, (1, 1)), 0, 1) for a in (self.total, self.count))
        count = np.maximum(count, 0)
        all_days = (total.sum(0) + 1e-3 * self.mean) / (count.sum(0) + 1e-3)
        if len(total) == 1:
            return all_days[None]
        return (total + _PRIOR * all_days) / (count + _PRIOR)


def _kernel(bins: int, width: float) -> np.ndarray:
    if width == 0 or bins == 1:
        return np.eye(bins)
    apart = np.abs(np.arange(bins)[:, None] - np.arange(bins))
    apart = np.minimum(apart, bins - apart)
    return np.exp(-((apart / width) ** 2) / 2)


def _no_effect(train: Readings) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    known = train.known.reshape(train.known.shape[0] * train.known.shape[1], train.known.shape[2])
    with np.errstate(invalid="ignore"):
        there = np.maximum((~np.isnan(known)).sum(0), 1)
        mean = np.nansum(known, axis=0) / there
        std = np.sqrt(np.nansum((known - mean) ** 2, axis=0) / there)
    return np.zeros((known.shape[1], *train.values.shape[1:])), mean, np.where(std > 0, std, 1.0)


def _with_effect(profile: Profile, train: Readings) -> Profile:
    """The same with the effect of known columns, each sensor's by least squares with a small penalty."""
    if not len(profile.effect):
        return profile
    x = profile.usual(train.known)
    y = train.values - profile.at(train.stamps, train.clock, train.known)
    effect = np.zeros_like(profile.effect)
    for v in range(y.shape[2]):
        there = ~np.isnan(y[..., v])
        seen = np.where(there[..., None], x, 0)
        gram = np.einsum("tnk,tnl->nkl", seen, seen) + 10.0 * np.eye(x.shape[-1])
        moment = np.einsum("tnk,tn->nk", seen, np.where(there, y[..., v], 0))
        effect[..., v] = np.linalg.solve(gram, moment[..., None])[..., 0].T
    return dataclasses.replace(profile, effect=effect)
