"""Models: `model(x, times, graph)` predicts the nodes' features at `times`; x are those at `times[0]`."""

from ._neural_gde import NeuralGDE as NeuralGDE
from ._neural_gsde import NeuralGSDE as NeuralGSDE
from ._neural_ode import FlatField as FlatField
from ._neural_ode import neural_ode as neural_ode
from ._persistence import persistence as persistence
from ._static import Static as Static
