"""FieldEmbedding: several categorical fields of a sample, looked up side by side."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, SupportsFloat, SupportsIndex

import numpy as np
from numpy.typing import DTypeLike, NDArray

from .._arrays import Indices, TensorLike, as_array, as_gradient, as_indices, as_table
from .._devices import empty, is_array, require_host, unchecked
from ..lookup import gather_columns
from ..optim import Optimizer
from .composite import Composite
from .embedding import Embedding
from .table import TableLayer


class FieldEmbedding(Composite):
    """Named categorical fields, each with a table, their vectors side by side in one output.

    ``y[..., :] = [weight_1[ids_1[...], :], weight_2[ids_2[...], :], ...]``.

    Parameters
    ----------
    fields : mapping of str to (N, d) or Embedding
        For each field the size of a new table, or a layer. The order is that of the columns of the output; fields with
        one and the same layer share its table.
    share : mapping of str to str, optional
        Fields that use the table of another, as in ``{"ship_to": "country"}``; they come after all others, in order.
    init : str or callable
        Of new tables; see `Embedding`.
    optimizer : fastemb.optim.Optimizer, optional
        Of new tables.
    dtype : dtype_like
        Of new tables; all tables must have one dtype.
    device : {"cpu", "cuda"}
        Where new tables lie; "cuda:1" is the second GPU. All tables must lie on one device.
    seed : int, numpy.random.SeedSequence or numpy.random.Generator, optional
        Makes `init` repeatable: each new table draws from a generator of its own.

    Raises
    ------
    ImportError
        dtype "bfloat16" without ml_dtypes, device "cuda" without CuPy or numba-cuda.
    RuntimeError
        Device "cuda" without a GPU.
    TypeError
        An option of a wrong kind, tables on several devices.
    ValueError
        No fields, a field twice, a shared table that is not there, tables of several dtypes.

    Notes
    -----
    Rows are copied straight to their columns of the output: nothing is concatenated. Moves what the lookups move; on a
    GPU, where a lookup writes whole rows, those twice.

    References
    ----------
    C. Guo, F. Berkhahn, "Entity Embeddings of Categorical Variables", 2016, https://arxiv.org/abs/1604.06737

    Examples
    --------
    >>> import numpy as np, fastemb
    >>> fields = fastemb.nn.FieldEmbedding({"word": (10_000, 32), "category": (50, 8)})
    >>> fields({"word": [3, 14, 52, 7], "category": [5, 12, 11, 23]}).shape
    (4, 40)
    >>> fields(np.array([[3, 5], [14, 12]])).shape  # a column for each field
    (2, 40)
    """

    def __init__(
        self,
        fields: Mapping[str, tuple[SupportsIndex, SupportsIndex] | Embedding],
        *,
        share: Mapping[str, str] | None = None,
        init: Any = "uniform_fan",
        optimizer: Optimizer | None = None,
        dtype: DTypeLike = "float32",
        device: str = "cpu",
        seed: int | np.random.SeedSequence | np.random.Generator | None = None,
    ) -> None:
        if not isinstance(fields, Mapping) or not fields:
            msg = f"fields must be a mapping with at least one field, got {fields!r}"
            raise ValueError(msg) if isinstance(fields, Mapping) else TypeError(msg)
        if not isinstance(share, Mapping | None):
            msg = f"share must be a mapping of fields to fields, got {share!r}"
            raise TypeError(msg)
        # Drawn, not spawned: that would change the caller's SeedSequence, and the next layer made with it.
        seeds = np.random.default_rng(seed).integers(1 << 63, size=(len(fields), 2))
        options: dict[str, Any] = {"init": init, "optimizer": optimizer, "dtype": dtype, "device": device}
        self._of_field: dict[str, Embedding] = {}
        for (name, what), drawn in zip(fields.items(), seeds, strict=True):
            if isinstance(what, Embedding):
                self._of_field[name] = what
                continue
            try:
                num_rows, width = what
            except (TypeError, ValueError):
                msg = f"field {name!r} must be (num_embeddings, embedding_dim) or an Embedding, got {what!r}"
                raise TypeError(msg) from None
            self._of_field[name] = Embedding(num_rows, width, seed=np.random.default_rng(drawn), **options)
        for name, other in (share or {}).items():
            if name in self._of_field:
                msg = f"field {name!r} is given twice"
                raise ValueError(msg)
            if other not in self._of_field:
                msg = f"field {name!r} cannot share the table of {other!r}: there is no such field"
                raise ValueError(msg)
            self._of_field[name] = self._of_field[other]
        if not all(isinstance(name, str) for name in self._of_field):
            msg = f"names of fields must be strings, got {list(self._of_field)}"
            raise TypeError(msg)
        kinds = {layer.weight.dtype for layer in self._of_field.values()}
        if len(kinds) > 1:
            msg = f"tables must have one dtype, got {sorted(map(str, kinds))}"
            raise ValueError(msg)
        (self.dtype,) = kinds
        self._require_one_device()
        bounds = np.cumsum([0] + [layer.embedding_dim for layer in self._of_field.values()])
        self._columns = {
            name: slice(int(lo), int(hi)) for name, lo, hi in zip(self._of_field, bounds[:-1], bounds[1:], strict=True)
        }

    @property
    def fields(self) -> dict[str, Embedding]:
        """The layer of each field, in the order of the columns."""
        return dict(self._of_field)

    @property
    def columns(self) -> dict[str, slice]:
        """Where each field's vector lies in the output."""
        return dict(self._columns)

    @property
    def embedding_dim(self) -> int:
        """Width of the output, the sum of all fields'."""
        return max(columns.stop for columns in self._columns.values())

    def tables(self) -> dict[str, TableLayer]:
        """The layers of the fields, each once, by the first field that has it.

        Returns
        -------
        dict of str to Embedding
            The layers themselves.
        """
        found: dict[int, tuple[str, TableLayer]] = {}
        for name, layer in self._of_field.items():
            found.setdefault(id(layer), (name, layer))
        return dict(found.values())

    def _require_one_device(self) -> None:
        layers = self._of_field.values()
        if len({type(layer.weight) for layer in layers}) > 1 and len({layer.device for layer in layers}) > 1:
            devices = {name: layer.device for name, layer in self._of_field.items()}
            msg = f"tables of all fields must lie on one device, got {devices}"
            raise TypeError(msg)

    @property
    def _weight(self) -> NDArray[Any]:
        """One of the tables, to know where they lie."""
        return next(iter(self._of_field.values())).weight

    def _ids(self, ids: Any) -> dict[str, Indices]:
        """The ids of each field, of one shape and all in range."""
        self._require_one_device()
        names, like = list(self._of_field), self._weight
        if hasattr(ids, "columns"):  # a data frame
            ids = {name: _column(ids[name]) for name in ids.columns}
        if isinstance(ids, Mapping):
            _same_names(set(ids), set(names))
            split = {name: as_indices(ids[name], f"ids[{name!r}]", like=like) for name in names}
        else:
            require_host(ids, "ids", like, "weight")
            array = as_array(ids, "ids")
            if array.dtype.names is not None:
                _same_names(set(array.dtype.names), set(names))
                split = {name: as_indices(array[name], f"ids[{name!r}]", like=like) for name in names}
            else:  # a tensor is read once
                array = as_indices(ids if isinstance(ids, (list, tuple)) else array, "ids", like=like)
                if array.ndim == 0 or array.shape[-1] != len(names):
                    msg = f"ids must have a last axis of {len(names)}, one for each field, got shape {array.shape}"
                    raise ValueError(msg)
                split = {name: array[..., k] for k, name in enumerate(names)}
        shapes = {part.shape for part in split.values()}
        if len(shapes) > 1:
            msg = f"ids of all fields must have one shape, got {sorted(shapes)}"
            raise ValueError(msg)
        for name, part in split.items():
            try:
                self._of_field[name].require(part)
            except IndexError as error:
                error.add_note(f"in field {name!r}")
                raise
        return split

    def __call__(self, ids: Any) -> NDArray[Any]:
        """Look all fields up.

        Parameters
        ----------
        ids : mapping of str to array_like of int, data frame, structured array, or (..., F) array_like of int
            By field, all of one shape; or a column for each field, in their order.

        Returns
        -------
        (..., D) ndarray
            A new array, D the sum of the fields' widths.

        Raises
        ------
        IndexError
            An id out of range of its field.
        TypeError
            Ids that are not integers, or not where the tables are.
        ValueError
            Missing or unknown fields, shapes that do not fit, a read-only table with `max_norm` or an optimizer in mode
            "exact". After any error no table has been changed.
        """
        split = self._ids(ids)
        shape = next(iter(split.values())).shape
        out = empty((*shape, self.embedding_dim), self.dtype.newbyteorder("="), self._weight)
        rows = out.reshape(-1, self.embedding_dim)
        for layer in self._of_field.values():
            if layer.writes_at_lookup:
                as_table(layer.weight, write=True)  # before another table is changed
        with unchecked(out):
            for name, part in split.items():
                layer = self._of_field[name]
                layer.make_ready(part)
                gather_columns(rows, self._columns[name], layer.weight, part)
        return out

    def _parts(self, ids: Any, dy: TensorLike) -> dict[str, tuple[Indices, NDArray[Any]]]:
        split = self._ids(ids)
        shape = next(iter(split.values())).shape
        values = as_gradient(dy, (*shape, self.embedding_dim), self.dtype, "dy", like=self._weight)
        return {name: (part, values[..., self._columns[name]]) for name, part in split.items()}

    def backward(self, ids: Any, dy: TensorLike) -> None:
        """Add the gradient of the output, split by field, to the `grad` of the tables.

        Parameters
        ----------
        ids : mapping, structured array or (..., F) array_like
            What was looked up.
        dy : (..., D) array_like
            Gradient of the output.

        Raises
        ------
        IndexError
            An id out of range of its field.
        TypeError
            Ids that are not integers, a gradient that does not cast safely.
        ValueError
            Fields or shapes that do not fit. After any error nothing is pending that was not before.
        """
        for name, (part, values) in self._parts(ids, dy).items():
            self._of_field[name].backward(part, values)

    def fused_step(
        self,
        ids: Any,
        dy: TensorLike,
        *,
        lr: SupportsFloat | None = None,
        max_grad_norm: SupportsFloat | None = None,
    ) -> None:
        """`backward` and `step`, in one pass over the rows of every table that has one field.

        Parameters
        ----------
        ids : mapping, structured array or (..., F) array_like
            What was looked up.
        dy : (..., D) array_like
            Gradient of the output.
        lr : float, optional
            Learning rate of this step, in place of the optimizers' own.
        max_grad_norm : float, optional
            Scale the gradient so that its norm, over all tables, is at most this; then gradients are made first.

        Raises
        ------
        IndexError
            An id out of range of its field.
        RuntimeError
            A table has no optimizer.
        TypeError
            Ids that are not integers, a gradient that does not cast safely.
        ValueError
            Fields or shapes that do not fit, a bad `lr`. After any error no table has been changed.
        """
        parts = self._parts(ids, dy)
        if self._checked_step(lr, max_grad_norm) is not None:
            self.backward(ids, dy)
            self.step(lr=lr, max_grad_norm=max_grad_norm)
            return
        batches: dict[int, list[tuple[Embedding, Indices, NDArray[Any]]]] = {}
        for name, (part, values) in parts.items():
            layer = self._of_field[name]
            batches.setdefault(id(layer), []).append((layer, part, values))
        for batch in batches.values():
            for layer, part, values in batch[:-1]:
                layer.backward(part, values)
            layer, part, values = batch[-1]
            layer.fused_step(part, values, lr=lr)

    def __repr__(self) -> str:
        """The fields and the sizes of their tables."""
        names = {id(layer): name for name, layer in self.tables().items()}
        shown = [
            f"{name}: {layer.num_embeddings} x {layer.embedding_dim}"
            + ("" if names[id(layer)] == name else f" of {names[id(layer)]}")
            for name, layer in self._of_field.items()
        ]
        return f"FieldEmbedding({', '.join(shown)}, dtype={self.dtype})"


def _column(series: Any) -> Any:
    return series if is_array(series) else np.asarray(series)


def _same_names(given: set[str], wanted: set[str]) -> None:
    if given != wanted:
        msg = f"ids must have the fields {sorted(wanted)}, got {sorted(map(str, given))}"
        raise ValueError(msg)
