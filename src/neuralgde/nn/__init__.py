"""Graph layers: `layer(z, graph)` maps one sample, (nodes, in) -> (nodes, out); cells and TCN have their own calls."""

from ._chebyshev import Chebyshev as Chebyshev
from ._diffusion import Diffusion as Diffusion
from ._gat import GAT as GAT
from ._gatv2 import GATv2 as GATv2
from ._gcgru import GCGRU as GCGRU
from ._gcn import GCN as GCN
from ._gin import GIN as GIN
from ._gru import GRU as GRU
from ._learned_adjacency import LearnedAdjacency as LearnedAdjacency
from ._message_passing import MessagePassing as MessagePassing
from ._mlp import NodeMLP as NodeMLP
from ._sage import GraphSAGE as GraphSAGE
from ._tanh import fast_activation as fast_activation
from ._tcn import TCN as TCN
