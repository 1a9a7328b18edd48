"""Models: `model(x, times, graph)` predicts the nodes' features at `times`; x are those at `times[0]`."""

from ._latent import Elbo as Elbo
from ._latent import KLSchedule as KLSchedule
from ._latent import LatentGDE as LatentGDE
from ._latent import LatentPrediction as LatentPrediction
from ._latent_encoders import Gaussian as Gaussian
from ._latent_encoders import GraphEncoder as GraphEncoder
from ._latent_encoders import TCNEncoder as TCNEncoder
from ._latent_guard import CollapseReport as CollapseReport
from ._latent_guard import collapse_report as collapse_report
from ._neural_gde import NeuralGDE as NeuralGDE
from ._neural_gsde import NeuralGSDE as NeuralGSDE
from ._neural_ode import FlatField as FlatField
from ._neural_ode import neural_ode as neural_ode
from ._persistence import persistence as persistence
from ._static import Static as Static
