"""fastemb's rules as an optimizer of torch, and fused into the backward pass."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from .. import optim
from .._state import State
from ..rowgrad import hand_over
from ._torch_bags import dots
from ._torch_modules import Embedding, EmbeddingBag
from ._torch_tensors import array, array_or_none, has_changed, stream_of, tensor

_FLOATS = (torch.float32, torch.float64)


def _hyper_parameters(rule: Any) -> dict[str, Any]:
    """A rule as plain values: its name and its fields, which schedulers of torch may change."""
    if not isinstance(rule, optim.Optimizer):
        msg = f"rule must be a rule of fastemb.optim, got {type(rule).__name__}"
        raise TypeError(msg)
    if getattr(rule, "mode", "lazy") != "lazy":
        msg = f"rule must be in mode 'lazy', got {rule}: nobody brings rows up to date before they are looked up"
        raise ValueError(msg)
    return {"rule": type(rule).__name__, **dataclasses.asdict(rule)}


def _rule_of(group: dict[str, Any]) -> optim.Optimizer:
    kind = getattr(optim, group["rule"])
    options = {field.name: group[field.name] for field in dataclasses.fields(kind)}
    return kind(**options | {"lr": float(options["lr"])})  # type: ignore[no-any-return]


@functools.cache
def _state_of(rule: Any) -> type[State]:
    return type(rule().init(np.empty((0, 1))))


def _require_table(parameter: Any) -> None:
    if parameter.dim() != 2 or parameter.dtype not in _FLOATS:
        got = f"{tuple(parameter.shape)} of {parameter.dtype}"
        msg = f"params must be tables (N, D) of float32 or float64, got {got}: give others another optimizer"
        raise ValueError(msg)


class RowOptimizer(torch.optim.Optimizer):  # type: ignore[misc]
    """A rule of `fastemb.optim` as an optimizer of torch, for tables with sparse gradients.

    ``rule.step(table, state, rows of the gradient, values of the gradient)`` for each table.

    Parameters
    ----------
    params : iterable of torch.nn.Parameter, or of dict
        Tables (N, D) of float32 or float64, whose gradients are sparse: of layers with ``sparse=True``. A dict is a
        group with options of its own: those of the rule, or ``"rule"``, another one.
    rule : fastemb.optim.Optimizer
        Any of the seven, in mode "lazy".

    Raises
    ------
    TypeError
        A rule that is none.
    ValueError
        A rule in mode "exact", a parameter that is not a table.

    Notes
    -----
    Groups hold the options of the rule by name, so schedulers of torch work as usual; the state holds the step count
    and the arrays of the rule, on the memory that the kernels use. Gradients are summed over repeated rows here and
    nowhere else: torch's optimizers sort and copy them first. Weight decay is decoupled and for touched rows alone.

    Examples
    --------
    >>> import fastemb, torch
    >>> from fastemb.interop.torch import Embedding, RowOptimizer
    >>> layer = Embedding.from_pretrained(torch.zeros(3, 2), freeze=False, sparse=True)
    >>> optimizer = RowOptimizer(layer.parameters(), fastemb.optim.SGD(lr=0.5))
    >>> layer(torch.tensor([2, 2])).sum().backward()
    >>> optimizer.step()
    >>> layer.weight.tolist()
    [[0.0, 0.0], [0.0, 0.0], [-1.0, -1.0]]
    """

    def __init__(self, params: Any, rule: optim.Optimizer) -> None:
        super().__init__(params, _hyper_parameters(rule))

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add tables, with options of their own.

        Parameters
        ----------
        param_group : dict
            "params", and options as in the constructor.
        """
        rule = param_group.get("rule", self.defaults["rule"])
        hyper = {} if isinstance(rule, str) else _hyper_parameters(rule)
        super().add_param_group(param_group | hyper)
        group = self.param_groups[-1]
        try:
            _rule_of(group)
            for parameter in group["params"]:
                _require_table(parameter)
        except (TypeError, ValueError):
            self.param_groups.pop()
            raise

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Apply the gradients there are.

        Parameters
        ----------
        closure : callable, optional
            Computes the loss again, with its gradients.

        Returns
        -------
        tensor or None
            What `closure` returned.

        Raises
        ------
        RuntimeError
            A gradient that is not sparse, or not in rows alone; nothing has changed then.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        found = [(group, p) for group in self.param_groups for p in group["params"] if p.grad is not None]
        for _, parameter in found:
            if not parameter.grad.is_sparse:
                msg = "RowOptimizer needs sparse gradients: make the layer with sparse=True"
                raise RuntimeError(msg)
            if parameter.grad.sparse_dim() != 1:
                got = f"{parameter.grad.sparse_dim()} sparse dimensions"
                msg = f"RowOptimizer needs gradients whose rows alone are sparse, got one with {got}"
                raise RuntimeError(msg)
        for group, parameter in found:
            grad = parameter.grad
            with stream_of(parameter):
                rows, values = array(grad._indices()[0]), array(grad._values())
                if grad.is_coalesced():
                    self._step(parameter, group, "update", hand_over(rows, values, len(parameter)))
                else:
                    self._step(parameter, group, "step", rows, values)
        return loss

    def step_rows(self, parameter: Any, indices: Any, grad: Any, **options: Any) -> None:
        """Take a step with the gradient of a lookup: what layers given to `fuse` do in the backward pass.

        Parameters
        ----------
        parameter : torch.nn.Parameter
            A table of this optimizer.
        indices : tensor
            Of the lookup.
        grad : tensor
            Gradient of its result.
        **options
            As `fastemb.optim.Optimizer.step` takes them.

        Raises
        ------
        RuntimeError
            A parameter of others.
        """
        group = self._group_of(parameter)
        with stream_of(parameter):
            self._step(parameter, group, "step", array(indices), array(grad), **options)

    def step_bags(self, parameter: Any, indices: Any, offsets: Any, weights: Any, grad: Any, **options: Any) -> Any:
        """Take a step with the gradient of a pooled lookup: what layers given to `fuse` do in the backward pass.

        Parameters
        ----------
        parameter : torch.nn.Parameter
            A table of this optimizer.
        indices, offsets, weights : tensor or None
            Of the lookup.
        grad : tensor
            Gradient of its result.
        **options
            As `fastemb.optim.Optimizer.step_bag` takes them.

        Returns
        -------
        tensor or None
            The gradient of the weights, if that is asked for.

        Raises
        ------
        RuntimeError
            A parameter of others.
        """
        group = self._group_of(parameter)
        last = options.pop("include_last_offset") and offsets is not None
        weights_grad = None
        if weights is not None and weights.requires_grad:
            padding = -1 if options["padding_idx"] is None else options["padding_idx"]
            weights_grad = dots(parameter, indices, offsets, grad, padding, last)
        with stream_of(parameter):
            arrays = array(indices), array_or_none(offsets), array(grad)
            options |= {"per_sample_weights": array_or_none(weights), "include_last_offset": last}
            self._step(parameter, group, "step_bag", *arrays, **options)
        return weights_grad

    def _group_of(self, parameter: Any) -> dict[str, Any]:
        group: dict[str, Any]
        for group in self.param_groups:
            if any(p is parameter for p in group["params"]):
                return group
        msg = "this table is none of the RowOptimizer: if it was put into the layer after fuse, call fuse again"
        raise RuntimeError(msg)

    def _step(self, parameter: Any, group: dict[str, Any], method: str, *arrays: Any, **options: Any) -> None:
        rule, table, kept = _rule_of(group), array(parameter), self.state[parameter]
        if kept:
            state = _state_of(type(rule))(
                **{name: value if name == "step" else array(value) for name, value in kept.items()}
            )
        else:
            state = rule.init(table)
            arrays_of_state = {name: tensor(values) for name, values in state.arrays().items()}
        getattr(rule, method)(table, state, *arrays, **options)
        if not kept:
            kept.update(arrays_of_state)
        kept["step"] = state.step
        has_changed(parameter)


def fuse(module: torch.nn.Module, rule: optim.Optimizer) -> RowOptimizer:
    """Let the backward pass update the tables of a module at once, without a gradient of them.

    Parameters
    ----------
    module : torch.nn.Module
        Layers of `Embedding` and `EmbeddingBag` in it, itself included, are changed in place; frozen ones are left out.
    rule : fastemb.optim.Optimizer
        Any of the seven, in mode "lazy".

    Returns
    -------
    RowOptimizer
        Of these tables: for its options, for schedulers, and for its state. Its ``step()`` finds no gradients.

    Raises
    ------
    TypeError
        A rule that is none.
    ValueError
        A module without such layers, a layer with mode "max", a rule in mode "exact".

    Notes
    -----
    As in FBGEMM, every backward pass is a step: gradients are not added up over several passes nor clipped, and
    processes of ``DistributedDataParallel`` would go separate ways. Under ``torch.compile`` such a layer is called
    between two graphs. With the gradient of a lookup's result there are O(L) integers and no more.

    Inputs of a lookup must stay as they are until its backward pass, as without `fuse`; the table need not, but for the
    gradient of ``per_sample_weights``: where that is asked for and another step came first, the backward pass raises
    RuntimeError.

    Examples
    --------
    >>> import fastemb, torch
    >>> from fastemb.interop.torch import EmbeddingBag, fuse
    >>> bag = EmbeddingBag.from_pretrained(torch.zeros(4, 2), freeze=False, mode="sum")
    >>> optimizer = fuse(bag, fastemb.optim.SGD(lr=0.5))
    >>> bag(torch.tensor([[1, 3], [3, 3]])).sum().backward()
    >>> bag.weight[:, 0].tolist(), bag.weight.grad
    ([0.0, -0.5, 0.0, -1.5], None)
    """
    layers = [
        layer
        for layer in module.modules()
        if isinstance(layer, (Embedding, EmbeddingBag)) and layer.weight.requires_grad
    ]
    if not layers:
        msg = "module must have an Embedding or EmbeddingBag of fastemb.interop.torch that is not frozen"
        raise ValueError(msg)
    if any(getattr(layer, "mode", None) == "max" for layer in layers):
        msg = "module must have no EmbeddingBag with mode 'max': its gradient is known before the update alone"
        raise ValueError(msg)
    optimizer = RowOptimizer(dict.fromkeys(layer.weight for layer in layers), rule)
    for layer in layers:
        layer._fused = optimizer
    return optimizer
