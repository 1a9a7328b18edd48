"""Rates, step by step."""

import math

import numpy as np
import pytest

from neuralgde.train import TrainConfig, rate_at


def rates(total, per_epoch=1, **options):
    return rate_at(TrainConfig(steps=total, rate=0.1, **options), np.arange(total), total, per_epoch)


def test_constant():
    np.testing.assert_array_equal(rates(5), 0.1)


@pytest.mark.parametrize(("factor", "per_epoch"), [(1, 1), (1, 3), (2, 1), (3, 2)])
def test_cosine_restarts(factor, per_epoch):
    expected, t_cur, t_i = [], 0, 4
    while len(expected) < 60:
        expected += [0.02 + 0.08 * (1 + math.cos(math.pi * t_cur / t_i)) / 2] * per_epoch
        t_cur += 1
        if t_cur == t_i:
            t_cur, t_i = 0, t_i * factor
    options = {"restart_epochs": 4, "restart_factor": factor, "end_rate": 0.02}
    np.testing.assert_allclose(rates(60, per_epoch, schedule="cosine_restarts", **options), expected[:60], rtol=1e-12)


def test_one_cycle():
    r = rates(101, schedule="one_cycle", peak_step=30, start_rate=0.02, end_rate=0.001)
    np.testing.assert_allclose(r[[0, 15, 30, 65, 100]], [0.02, 0.06, 0.1, 0.0505, 0.001], rtol=1e-12)
    assert np.all(np.diff(r[:31]) > 0) and np.all(np.diff(r[30:]) < 0)
    assert rates(50, schedule="one_cycle")[0] == pytest.approx(0.1 / 25)
    assert rates(1, schedule="one_cycle").shape == (1,)


@pytest.mark.peers
def test_as_in_pytorch():
    import torch

    def of_torch(make, total):
        optimiser = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1)
        schedule, out = make(optimiser), []
        for _ in range(total):
            out.append(optimiser.param_groups[0]["lr"])
            optimiser.step()
            schedule.step()
        return out

    lr = torch.optim.lr_scheduler
    ours = rates(50, schedule="cosine_restarts", restart_epochs=5, restart_factor=2, end_rate=0.01)
    theirs = of_torch(lambda o: lr.CosineAnnealingWarmRestarts(o, 5, T_mult=2, eta_min=0.01), 50)
    np.testing.assert_allclose(ours, theirs, rtol=1e-6)
    ours = rates(50, schedule="one_cycle", end_rate=0.1 / 25 / 1e4)
    # It refuses the step after the last.
    theirs = of_torch(lambda o: lr.OneCycleLR(o, 0.1, total_steps=50, cycle_momentum=False), 49)
    np.testing.assert_allclose(ours[:49], theirs, rtol=1e-6)
