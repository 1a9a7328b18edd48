"""Places for the nodes of a graph that has no coordinates."""

import numpy as np
from jaxtyping import Float, Int

# Every pair of nodes repels, which is quadratic: past this many nodes they are put on a spiral.
_MANY = 600
_ROUNDS = 120


def layout(
    nodes: int, senders: Int[np.ndarray, " edges"], receivers: Int[np.ndarray, " edges"]
) -> Float[np.ndarray, "nodes 2"]:
    """Coordinates in [0, 1]: neighbours near, the rest apart (Fruchterman and Reingold 1991). The same in every run."""
    # The golden angle spreads points evenly over a disc.
    turn = np.arange(nodes) * np.pi * (3 - np.sqrt(5))
    place = (
        np.sqrt(np.arange(nodes) + 0.5)[:, None] * np.stack([np.cos(turn), np.sin(turn)], 1) / np.sqrt(max(nodes, 1))
    )
    if 1 < nodes <= _MANY:
        near = np.zeros((nodes, nodes), bool)
        near[senders, receivers] = near[receivers, senders] = True
        np.fill_diagonal(near, False)
        length = 1.5 / np.sqrt(nodes)
        for heat in np.linspace(0.15, 0.005, _ROUNDS):
            difference = place[:, None] - place[None]
            distance = np.maximum(np.sqrt((difference**2).sum(-1)), 1e-6)
            # A weak pull to the middle keeps parts that no edge joins on the page.
            force = length**2 / distance**2 - np.where(near, distance / length, 0)
            move = (difference * force[:, :, None]).sum(1) - place * length
            size = np.maximum(np.sqrt((move**2).sum(-1, keepdims=True)), 1e-9)
            place = place + move / size * np.minimum(size, heat)
    low, high = place.min(0, initial=np.inf), place.max(0, initial=-np.inf)
    return (place - low) / np.maximum(high - low, 1e-9) if nodes > 1 else np.full((nodes, 2), 0.5)
