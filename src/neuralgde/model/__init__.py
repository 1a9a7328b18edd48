"""Models: `model(x, times, graph)` predicts the nodes' features at `times`; x are those at `times[0]`.

Hybrid models forecast from a stream of observations instead: `model(stream, query_times)`.
"""

from ._distributions import AbstractForecast as AbstractForecast
from ._distributions import Gaussian as Gaussian
from ._distributions import Quantiles as Quantiles
from ._distributions import StudentT as StudentT
from ._edges import EdgeDecoder as EdgeDecoder
from ._edges import EdgeRule as EdgeRule
from ._edges import edge_loss as edge_loss
from ._edges import likely_graph as likely_graph
from ._flat_gru import gru as gru
from ._gcde_gru import gcde_gru as gcde_gru
from ._gcde_gru import gcgru as gcgru
from ._graph_flow import GraphFlow as GraphFlow
from ._hybrid_gde import HybridGDE as HybridGDE
from ._latent import Elbo as Elbo
from ._latent import KLSchedule as KLSchedule
from ._latent import LatentGDE as LatentGDE
from ._latent import LatentPrediction as LatentPrediction
from ._latent_encoders import GraphEncoder as GraphEncoder
from ._latent_encoders import LastValueEncoder as LastValueEncoder
from ._latent_encoders import TCNEncoder as TCNEncoder
from ._latent_guard import CollapseReport as CollapseReport
from ._latent_guard import collapse_report as collapse_report
from ._neural_gde import NeuralGDE as NeuralGDE
from ._neural_gsde import NeuralGSDE as NeuralGSDE
from ._neural_ode import FlatField as FlatField
from ._neural_ode import neural_ode as neural_ode
from ._online import HybridState as HybridState
from ._persistence import persistence as persistence
from ._reaction_gde import reaction_gde as reaction_gde
from ._static import Static as Static
