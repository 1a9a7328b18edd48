"""Training: one loop for all models, many seeds in one program, checkpoints that resume bit for bit.

```python
def loss(model, batch, key):                    # a scalar, or (scalar, {"name": scalar, …}) to log more
    x, y, graph = batch
    return jnp.mean((model(x, times, graph)[:, -1] - y) ** 2)

config = TrainConfig(epochs=100, batch_size=64, rate=1e-2, clip=1.0)
result = fit(model, loss, (x, y, graphs), config, key=key)
result.model                                    # and .best, .history["loss"], .status, .skipped, .steps, .seconds

models = make_seeds(lambda k: NeuralGDE(None, GCDE((4, 16, 4), key=k), None), jax.random.split(key, 10))
result = fit_seeds(models, loss, data, config, key=key, validation=validation, checkpoint="run.ckpt", log="run.jsonl")
eqx.filter_vmap(evaluate)(result.best)          # every array has a leading seed axis; take_seed(result.best, 3) is one
```

With a `batch_size` every array of the data has a leading axis of samples, graphs too; without one the data is any tree
of arrays, given whole to the loss. Arrays that a loss needs besides, such as one graph for all samples, go into the
loss itself, `eqx.Partial(loss, graph=graph)`, so that they are arguments of the compiled program and not constants.

Losses of models that solve an equation should let failures through as NaN, as `NeuralGDE` does: a step whose loss or
gradient is not finite is skipped and counted, and a seed that has only such steps is stopped without the others.
"""

from ._checkpoint import Checkpoint as Checkpoint
from ._checkpoint import read_checkpoint as read_checkpoint
from ._checkpoint import save_checkpoint as save_checkpoint
from ._config import TrainConfig as TrainConfig
from ._fit import fit as fit
from ._fit import fit_seeds as fit_seeds
from ._fit import make_seeds as make_seeds
from ._result import TrainResult as TrainResult
from ._result import take_seed as take_seed
from ._schedule import rate_at as rate_at
from ._state import TrainStatus as TrainStatus
