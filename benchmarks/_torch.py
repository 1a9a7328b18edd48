"""The PyTorch side of the comparisons: the same fields, written as their users would, with the operator made once."""

from collections.abc import Callable, Sequence

import numpy as np
import torch

from ._problems import Layers


class GCDE(torch.nn.Module):
    """f(t, z) with the products left to `multiply`, the operator times a block; `calls` counts evaluations."""

    def __init__(self, given: Layers, multiply: Callable[[torch.Tensor], torch.Tensor]):
        super().__init__()
        self.weights = torch.nn.ParameterList([torch.tensor(w) for w in given.weights])
        self.biases = torch.nn.ParameterList([torch.tensor(b) for b in given.biases])
        self.multiply = multiply
        self.calls = 0

    def forward(self, t, z):
        self.calls += 1
        last = len(self.weights) - 1
        for i, (w, b) in enumerate(zip(self.weights, self.biases, strict=True)):
            # The operator multiplies the fewer features, as in ours.
            if w.shape[-2] < w.shape[-1]:
                z = affine(self.multiply(z), w, b)
            else:
                z = self.multiply(z @ w) + (b if b.ndim == 1 else b.unsqueeze(-2))
            if i < last:
                z = torch.tanh(z)
        return z

    def in_order(self) -> list[torch.Tensor]:
        return [p for pair in zip(self.weights, self.biases, strict=True) for p in pair]


def affine(z: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    if w.ndim == 3:
        return torch.baddbmm(b.unsqueeze(1), z, w)
    if z.ndim == 2:
        return torch.addmm(b, z, w)
    return torch.addmm(b, z.reshape(-1, z.shape[-1]), w).reshape(*z.shape[:-1], w.shape[-1])


def differentiate(
    field: GCDE, z0: np.ndarray, forward: Callable[[torch.Tensor], torch.Tensor], scale: float = 1.0
) -> Callable[[], tuple[list, list]]:
    """A run: states forward, then the gradient of their mean square (times `scale`) in the state and all parameters."""
    start = torch.tensor(z0)
    parameters: Sequence[torch.Tensor] = field.in_order()

    def run():
        field.calls = 0
        z = start.clone().requires_grad_()
        states = forward(z)
        loss = scale * (states**2).mean()
        return [states], list(torch.autograd.grad(loss, [z, *parameters]))

    return run


def counted(field: GCDE, first: int, stages: int) -> Callable[[], dict[str, int]]:
    """Statistics of the last run, counted in the field itself: evaluations, and the steps they make up."""
    return lambda: {"evaluations": field.calls, "steps": (field.calls - first) // stages}


class _StoredTranspose(torch.autograd.Function):
    """A CSR product whose gradient multiplies by the transpose made once, where PyTorch's own makes it every time."""

    @staticmethod
    def forward(ctx, matrix, transposed, z):
        ctx.transposed = transposed
        return matrix @ z

    @staticmethod
    def backward(ctx, *grads):
        return None, None, ctx.transposed @ grads[0]


def csr_product(indptr: np.ndarray, indices: np.ndarray, data: np.ndarray, n: int) -> Callable:
    """z -> A z by torch.sparse_csr with the transpose made once."""
    import scipy.sparse as sp

    return csr_matrix_product(sp.csr_matrix((data, indices, indptr), shape=(n, n)))


def csr_matrix_product(a) -> Callable:
    """The same of a SciPy matrix, square or not."""
    matrix, transposed = (to_csr(m) for m in (a, a.T.tocsr()))
    return lambda z: _StoredTranspose.apply(matrix, transposed, z)


def to_csr(m) -> torch.Tensor:
    m.sort_indices()
    parts = (torch.tensor(m.indptr, dtype=torch.int32), torch.tensor(m.indices, dtype=torch.int32))
    return torch.sparse_csr_tensor(*parts, torch.tensor(m.data.astype(np.float32)), size=m.shape)
