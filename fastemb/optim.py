"""Optimizers that update the touched rows of a table alone: a rule, its state, and a fused step.

Every rule works on gradients G summed over duplicate indices first, leaves other rows and their state as they are (the
"lazy" rule of sparse optimizers), and counts steps globally: t is 1 at the first call. Arithmetic is in the table's
dtype, float32 for half-width tables. The bits do not depend on the number of threads.
"""

from __future__ import annotations

import abc
import dataclasses
import math
from collections.abc import Callable
from types import ModuleType
from typing import Any, ClassVar, SupportsFloat, SupportsIndex

import numpy as np
from numpy.typing import NDArray

from . import _options
from ._arrays import TensorLike, as_gradient, as_indices, as_table, backend, require_disjoint
from ._groups import Groups, gradient_blocks
from ._state import AdamState, State
from .kernels import accumulator
from .rowgrad import RowGrad

__all__ = ["SGD", "Adam", "AdamState", "Optimizer", "State"]


@dataclasses.dataclass(frozen=True)
class Optimizer(abc.ABC):
    """What all rules share: hyper-parameters are fields, checked at construction; methods apply the rule.

    Parameters
    ----------
    lr : float
        Learning rate, at least 0.
    """

    lr: float

    _kernel: ClassVar[str]
    _state: ClassVar[type[State]] = State

    def __post_init__(self) -> None:
        """Make the hyper-parameters that are single numbers floats: finite and at least 0."""
        for field in dataclasses.fields(self):
            if field.type in ("float", float):
                object.__setattr__(self, field.name, _options.real(field.name, getattr(self, field.name)))

    @abc.abstractmethod
    def init(self, weight: NDArray[Any]) -> State:
        """Make the state for a table.

        Parameters
        ----------
        weight : (N, D) ndarray
            The table that will be updated.

        Returns
        -------
        State
            With ``step`` 0.
        """

    @abc.abstractmethod
    def _hyper(self, lr: float, t: int) -> tuple[float, ...]:
        """The numbers of step t, as the kernel takes them."""

    def update(self, weight: NDArray[Any], state: State, row_grad: RowGrad, *, lr: SupportsFloat | None = None) -> None:
        """Apply a gradient of the touched rows to a table, in place.

        Parameters
        ----------
        weight : (N, D) ndarray of float16, bfloat16, float32 or float64
            The table; changed at ``row_grad.rows`` alone.
        state : State
            Made by `init` for this table; its step count goes up by one, also for an empty gradient.
        row_grad : RowGrad
            Of the shape of `weight`.
        lr : float, optional
            Learning rate of this step, in place of the rule's own.

        Raises
        ------
        TypeError
            A state of another rule, or a gradient that does not cast safely to the table's accumulation dtype.
        ValueError
            Shapes that do not fit, arrays that overlap or cannot be written. After any error nothing has changed.
        """
        if not isinstance(row_grad, RowGrad):
            msg = f"row_grad must be a RowGrad, got {type(row_grad).__name__}"
            raise TypeError(msg)
        table = as_table(weight, write=True)
        if row_grad.shape != table.shape:
            msg = f"row_grad must have the shape of weight, {table.shape}, got {row_grad.shape}"
            raise ValueError(msg)
        grad = as_gradient(row_grad.values, row_grad.values.shape, table.dtype, "row_grad.values")
        rows = row_grad.rows.copy()
        apply = self._prepare(table, state, grad, lr)
        apply(Groups(rows, np.arange(rows.size + 1), np.arange(rows.size)), scale_grad_by_freq=False)

    def step(
        self,
        weight: NDArray[Any],
        state: State,
        indices: TensorLike,
        grad: TensorLike,
        *,
        lr: SupportsFloat | None = None,
        padding_idx: SupportsIndex | None = None,
        scale_grad_by_freq: bool = False,
    ) -> None:
        """Apply the gradient of a lookup's result to the table, in place: `embedding_grad` and `update` in one pass.

        Parameters
        ----------
        weight : (N, D) ndarray of float16, bfloat16, float32 or float64
            The table; changed at the distinct `indices` alone.
        state : State
            Made by `init` for this table; its step count goes up by one.
        indices : array_like of int, any shape
            The indices of the lookup, in ``[0, N)``.
        grad : array_like, shape ``(*indices.shape, D)``
            Gradient of the lookup's result.
        lr : float, optional
            Learning rate of this step, in place of the rule's own.
        padding_idx : int, optional
            In ``[-N, N)``: this row is not updated.
        scale_grad_by_freq : bool
            Divide each ``grad[k]`` by the number of times that ``indices[k]`` occurs in this call.

        Raises
        ------
        IndexError
            An index outside ``[0, N)``.
        TypeError
            Indices that are not integers, a state of another rule, a gradient that does not cast safely.
        ValueError
            Shapes that do not fit, arrays that overlap or cannot be written. After any error nothing has changed.

        Notes
        -----
        No gradient array exists: allocates O(L) integers and O(D) numbers a thread, whatever N and the gradient's
        dtype, and one row for every 1,024 positions of an index that occurs more often than that. The bits are those
        of `update` with the result of `embedding_grad`, given a gradient in the dtype of the sums.
        """
        table = as_table(weight, write=True)
        ids = as_indices(indices)
        values = as_gradient(grad, (*ids.shape, table.shape[1]), table.dtype)
        padding = _options.padding(padding_idx, table.shape[0])
        apply = self._prepare(table, state, values, lr, indices=ids)
        apply(Groups.of(ids, table.shape[0], padding), scale_grad_by_freq=bool(scale_grad_by_freq))

    def _prepare(
        self,
        table: NDArray[Any],
        state: State,
        grad: NDArray[Any],
        lr: SupportsFloat | None,
        **read: NDArray[Any],
    ) -> Callable[..., None]:
        """Check everything but the indices, and return what takes the step."""
        rate = self.lr if lr is None else _options.real("lr", lr)
        arrays = self._state_arrays(table, state)
        step = _options.integer("state.step", state.step, at_least=0) + 1
        hyper = self._hyper(rate, step)
        require_disjoint({"weight": table, **arrays}, {"grad": grad, **read})
        kernels: ModuleType = backend(table)
        kernel = getattr(kernels, self._kernel)

        def apply(groups: Groups, *, scale_grad_by_freq: bool) -> None:
            for (terms, *runs), scale in gradient_blocks(grad, groups, kernels, table.dtype, scale_grad_by_freq):
                kernel(table, tuple(arrays.values()), terms, *runs, hyper, scale)
            state.step = step

        return apply

    def _state_arrays(self, table: NDArray[Any], state: State) -> dict[str, NDArray[Any]]:
        if type(state) is not self._state:
            msg = f"state must be a {self._state.__name__} made by init(weight), got {type(state).__name__}"
            raise TypeError(msg)
        arrays = {}
        for name, array in state.arrays().items():
            name = f"state.{name}"
            arrays[name] = as_table(array, name, write=True)
            if array.shape != table.shape or array.dtype != accumulator(table.dtype):
                msg = (
                    f"{name} must have shape {table.shape} and dtype {accumulator(table.dtype)}, "
                    f"got {array.shape} and {array.dtype}"
                )
                raise ValueError(msg)
        return arrays


@dataclasses.dataclass(frozen=True)
class SGD(Optimizer):
    """Gradient descent on the touched rows.

    ``W[r] *= 1 - lr*weight_decay``, then ``W[r] -= lr * G[r]``.

    Parameters
    ----------
    lr : float
        Learning rate, at least 0.
    weight_decay : float
        Decoupled decay of the touched rows, at least 0.

    Raises
    ------
    ValueError
        A hyper-parameter out of range.

    Notes
    -----
    No state but the step count. torch's ``SGD`` adds ``weight_decay * W`` to the gradient instead, which is the same
    rule for dense gradients, and refuses it for sparse ones. Moves ``(L + 2 * U) * D * itemsize`` bytes.

    Examples
    --------
    >>> import numpy as np, fastemb
    >>> table = np.ones((3, 2), np.float32)
    >>> opt = fastemb.optim.SGD(lr=0.5)
    >>> opt.step(table, opt.init(table), [2, 2], np.ones((2, 2), np.float32))
    >>> table
    array([[1., 1.],
           [1., 1.],
           [0., 0.]], dtype=float32)
    """

    lr: float = 1e-2
    weight_decay: float = 0.0

    _kernel: ClassVar[str] = "sgd"

    def init(self, weight: NDArray[Any]) -> State:
        """Make the state for a table: a step count.

        Parameters
        ----------
        weight : (N, D) ndarray
            The table that will be updated.

        Returns
        -------
        State
            With ``step`` 0.
        """
        as_table(weight)
        return State()

    def _hyper(self, lr: float, t: int) -> tuple[float, ...]:
        return lr, 1.0 - lr * self.weight_decay


@dataclasses.dataclass(frozen=True)
class Adam(Optimizer):
    """Adam on the touched rows, with global bias correction.

    ``W[r] *= 1 - lr*weight_decay``, then ``m[r] += (1-b1) * (G[r] - m[r])``, ``v[r] += (1-b2) * (G[r]**2 - v[r])``,
    ``W[r] -= lr * sqrt(1-b2**t) / (1-b1**t) * m[r] / (sqrt(v[r]) + eps)`` with ``b1, b2 = betas``.

    Parameters
    ----------
    lr : float
        Learning rate, at least 0.
    betas : (float, float)
        Decay of the running means, each in ``[0, 1)``.
    eps : float
        Added to the root of the uncorrected v, at least 0.
    weight_decay : float
        Decoupled decay of the touched rows, at least 0.

    Raises
    ------
    ValueError
        A hyper-parameter out of range.

    Notes
    -----
    State: `AdamState`, m and v of the table's shape, zeros. Lazy: a row that is not touched keeps W, m and v, where
    dense Adam would move it on by its momentum. Equal to ``torch.optim.SparseAdam``, which has no weight decay;
    ``torch.optim.Adam`` adds eps after the bias correction of v instead; Keras 3 adds it where we do. The decay is that
    of ``torch.optim.AdamW``. Moves ``(L + 6 * U) * D * itemsize`` bytes.

    References
    ----------
    D. P. Kingma, J. Ba, "Adam: A Method for Stochastic Optimization", 2014, https://arxiv.org/abs/1412.6980

    Examples
    --------
    >>> import numpy as np, fastemb
    >>> table = np.zeros((3, 2), np.float32)
    >>> opt = fastemb.optim.Adam(lr=0.1)
    >>> state = opt.init(table)
    >>> opt.step(table, state, [1], np.ones((1, 2), np.float32))
    >>> table.round(3), state.step
    (array([[ 0. ,  0. ],
           [-0.1, -0.1],
           [ 0. ,  0. ]], dtype=float32), 1)
    """

    lr: float = 1e-3
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.0

    _kernel: ClassVar[str] = "adam"
    _state: ClassVar[type[State]] = AdamState

    def __post_init__(self) -> None:
        """Check the betas too."""
        super().__post_init__()
        if not isinstance(self.betas, (tuple, list)) or len(self.betas) != 2:
            msg = f"betas must be two numbers, got {self.betas!r}"
            raise ValueError(msg)
        betas = tuple(_options.real(f"betas[{i}]", beta, below=1.0) for i, beta in enumerate(self.betas))
        object.__setattr__(self, "betas", betas)

    def init(self, weight: NDArray[Any]) -> AdamState:
        """Make the state for a table: zeros m and v.

        Parameters
        ----------
        weight : (N, D) ndarray
            The table that will be updated.

        Returns
        -------
        AdamState
            With ``step`` 0.
        """
        table = as_table(weight)
        dtype = accumulator(table.dtype)
        return AdamState(m=np.zeros(table.shape, dtype), v=np.zeros(table.shape, dtype))

    def _hyper(self, lr: float, t: int) -> tuple[float, ...]:
        beta1, beta2 = self.betas
        rate = lr * math.sqrt(1.0 - beta2**t) / (1.0 - beta1**t)
        return rate, 1.0 - lr * self.weight_decay, 1.0 - beta1, 1.0 - beta2, self.eps
