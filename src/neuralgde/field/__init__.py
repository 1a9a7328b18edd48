"""Vector fields: `field(t, z, graph)` gives dz/dt for one sample, z of shape (nodes, features)."""

from ._augment import LearnedAugment as LearnedAugment
from ._augment import ZeroAugment as ZeroAugment
from ._continuous_gnn import ContinuousGNN as ContinuousGNN
from ._depth import DepthVarying as DepthVarying
from ._gade import GADE as GADE
from ._gcde import GCDE as GCDE
from ._gmde import GMDE as GMDE
from ._gsde import GSDEField as GSDEField
from ._gsde import evaluate_pair as evaluate_pair
from ._hamiltonian import HamiltonianField as HamiltonianField
from ._inputs import LinearInputs as LinearInputs
from ._inputs import WithInputs as WithInputs
from ._protocol import Field as Field
from ._protocol import breakpoints_of as breakpoints_of
from ._protocol import prepare_graph as prepare_graph
from ._reactions import ReactionDiffusion as ReactionDiffusion
from ._reactions import ReactionDrift as ReactionDrift
from ._reactions import ReactionRates as ReactionRates
from ._residual import ResidualGNN as ResidualGNN
from ._second_order import SecondOrder as SecondOrder
from ._time import WithTime as WithTime
