"""PrunedEmbedding: a table that gives up rows, and the memory of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self, SupportsFloat, SupportsIndex

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .. import _options
from .._arrays import Indices, TensorLike, as_array, as_gradient, as_indices, as_table, check_indices
from .._devices import HOST, namespace, to_device, unchecked
from .._state import require_entries
from .composite import Composite
from .embedding import Embedding
from .row_map import best_rows, require_zeros_last, row_map, with_rows, worth_of_rows
from .table import TableLayer

METHODS = ("magnitude", "frequency")


class PrunedEmbedding(Composite):
    """An embedding of N ids on fewer rows: pruned ids are zeros, and several ids may share a row.

    ``y[..., :] = table[row_of[ids[...]], :]``, zeros where ``row_of`` is -1.

    Parameters
    ----------
    num_embeddings : int
        N, how many ids there are, at least 1.
    embedding_dim : int
        D, width of a row, at least 1.
    row_of : (N,) array_like of int, optional
        The row of each id, in ``[0, R)`` with R rows altogether; -1 for none. One row for each id by default. On any
        device: the layer has its own on that of the table.
    **options
        As for `Embedding`, but for `padding_idx`.

    Raises
    ------
    ImportError, RuntimeError
        As `Embedding`.
    TypeError
        An option of a wrong kind.
    ValueError
        An option out of range.

    Notes
    -----
    The table holds the kept rows and one of zeros, to which pruned ids lead: the padding row of an `Embedding`, which
    training keeps zero. The optimizer's state shrinks with the table.

    References
    ----------
    A. See, M.-T. Luong, C. D. Manning, "Compression of Neural Machine Translation Models via Pruning", 2016,
    https://arxiv.org/abs/1606.09274

    Examples
    --------
    >>> import numpy as np, fastemb
    >>> vectors = np.array([[3.0, 1.0], [0.1, 0.0], [0.0, 2.0], [0.0, 0.2]])
    >>> emb = fastemb.nn.PrunedEmbedding.from_pretrained(vectors)
    >>> emb.prune(ratio=0.5)  # the new row of each old one
    array([ 0, -1,  1, -1])
    >>> emb([0, 1, 2])
    array([[3., 1.],
           [0., 0.],
           [0., 2.]])
    >>> emb.num_rows, emb.restore([1])
    (2, array([2]))
    """

    _carried = ("_row_of",)

    def __init__(
        self,
        num_embeddings: SupportsIndex,
        embedding_dim: SupportsIndex,
        *,
        row_of: ArrayLike | None = None,
        **options: Any,
    ) -> None:
        count = _options.size("num_embeddings", num_embeddings)
        _options.size("embedding_dim", embedding_dim)
        places, rows = row_map(row_of, count)
        if options.get("padding_idx") is not None:
            msg = "padding_idx cannot be used here: prune the id, and it is zeros"
            raise ValueError(msg)
        self._table = Embedding(rows + 1, embedding_dim, **{**options, "padding_idx": rows})
        self._row_of = to_device(places, self._table.device)

    @classmethod
    def from_pretrained(
        cls,
        weight: NDArray[Any],
        *,
        row_of: ArrayLike | None = None,
        **options: Any,
    ) -> Self:
        """Make a layer that trains a copy of a table.

        Parameters
        ----------
        weight : (R, D) ndarray
            The rows.
        row_of : (N,) array_like of int, optional
            The row of each id, -1 for none; one id for each row by default. On any device.
        **options
            As for `Embedding.from_pretrained`, but for `padding_idx` and `freeze`.

        Returns
        -------
        PrunedEmbedding
            The layer.

        Raises
        ------
        TypeError
            As `Embedding.from_pretrained`.
        ValueError
            As `Embedding.from_pretrained`, and for rows out of range.
        """
        table = as_table(weight)
        row_of = None if row_of is None else as_indices(row_of, "row_of")
        count = len(table) if row_of is None else row_of.size
        self = cls.__new__(cls)
        places, rows = row_map(row_of, _options.size("num_embeddings", count), len(table))
        xp = namespace(table)
        zeros = xp.zeros((1, table.shape[1]), table.dtype)
        if not {"padding_idx", "freeze"}.isdisjoint(options):
            msg = "padding_idx and freeze cannot be used here: prune the id, and the layer trains a copy"
            raise ValueError(msg)
        options |= {"padding_idx": rows, "freeze": False}
        self._table = Embedding.from_pretrained(xp.concatenate((table, zeros)), **options)
        self._row_of = to_device(places, self._table.device)
        return self

    @property
    def num_embeddings(self) -> int:
        """N, how many ids there are."""
        return int(self._row_of.size)

    @property
    def num_rows(self) -> int:
        """How many rows are kept."""
        return self._table.num_embeddings - 1

    @property
    def embedding_dim(self) -> int:
        """D, width of a row."""
        return int(self._table.embedding_dim)

    @property
    def weight(self) -> NDArray[Any]:
        """The kept rows, (num_rows, D): a view of the table."""
        return self._table.weight[:-1]

    @property
    def row_of(self) -> NDArray[np.int64]:
        """The row of each id, -1 for pruned ones, (N,): a new array."""
        rows: NDArray[np.int64] = namespace(self._row_of).where(self._row_of == self.num_rows, -1, self._row_of)
        return rows

    @property
    def grad(self) -> Any:
        """What is pending, as a RowGrad of the table with its row of zeros, or None."""
        return self._table.grad

    def tables(self) -> dict[str, TableLayer]:
        """The table, with its row of zeros.

        Returns
        -------
        dict of str to Embedding
            The layer itself.
        """
        return {"table": self._table}

    def _rows(self, ids: TensorLike) -> Indices:
        indices = as_indices(ids, like=self._row_of)
        check_indices(indices, self.num_embeddings)
        rows: Indices = self._row_of[indices]
        return rows

    def __call__(self, ids: TensorLike) -> NDArray[Any]:
        """Look ids up.

        Parameters
        ----------
        ids : array_like of int, any shape
            In ``[0, N)``.

        Returns
        -------
        (*ids.shape, D) ndarray
            A new array; zeros for pruned ids.

        Raises
        ------
        IndexError
            An id out of range.
        TypeError
            Ids that are not integers.
        """
        rows = self._rows(ids)
        with unchecked(self._row_of):
            return self._table(rows)

    def backward(self, ids: TensorLike, dy: TensorLike) -> None:
        """Add the gradient of a lookup's result to `grad`; pruned ids have none, ids of one row add up.

        Parameters
        ----------
        ids : array_like of int, any shape
            What was looked up.
        dy : (*ids.shape, D) array_like
            Gradient of the result.

        Raises
        ------
        IndexError, TypeError, ValueError
            As `Embedding.backward`. After any error `grad` is as before.
        """
        self._table.backward(self._rows(ids), dy)

    def fused_step(self, ids: TensorLike, dy: TensorLike, **options: Any) -> None:
        """`backward` and `step` in one pass over the rows.

        Parameters
        ----------
        ids : array_like of int, any shape
            What was looked up.
        dy : (*ids.shape, D) array_like
            Gradient of the result.
        **options
            As for `Embedding.fused_step`: lr, max_grad_norm.

        Raises
        ------
        IndexError, RuntimeError, TypeError, ValueError
            As `Embedding.fused_step`. After any error nothing has changed.
        """
        self._table.fused_step(self._rows(ids), dy, **options)

    def prune(
        self,
        *,
        ratio: SupportsFloat | None = None,
        keep: SupportsIndex | None = None,
        by: str = "magnitude",
        counts: ArrayLike | None = None,
    ) -> NDArray[np.int64]:
        """Give up the rows that count least; ids that led to them are zeros from now on.

        Parameters
        ----------
        ratio : float, optional
            In ``[0, 1]``: rows below this quantile go, as many as are below; rows of equal weight stay together.
        keep : int, optional
            How many rows stay instead, at most as many as there are; of rows of equal weight the first ones.
        by : {"magnitude", "frequency"}
            What counts: the sum of a row's absolute values, or how often its ids occur.
        counts : (N,) array_like of int or float
            For "frequency": how often each id occurs, on any device. Those of ids that share a row are added.

        Returns
        -------
        (num_rows before,) ndarray of int64
            The new row of each old one, -1 for those given up.

        Raises
        ------
        RuntimeError
            A gradient is pending: step or forget it first.
        TypeError
            An option of a wrong kind.
        ValueError
            Not exactly one of `ratio` and `keep`, an option out of range, numbers that are not finite. After any error
            nothing has changed, but that rows are up to date.
        """
        self._require_no_grad()
        _options.choice("by", by, METHODS)
        self.flush()
        row_of = to_device(self._row_of, HOST)
        return self._keep(best_rows(worth_of_rows(self.weight, by, counts, row_of), ratio, keep), row_of)

    def _require_no_grad(self) -> None:
        if self.grad is not None:
            msg = "a gradient is pending: call step() or zero_grad() first"
            raise RuntimeError(msg)

    def _keep(self, kept: NDArray[np.int64], row_of: NDArray[np.int64]) -> NDArray[np.int64]:
        """Keep these rows, ascending, and the row of zeros."""
        moved = np.full(self.num_rows + 1, kept.size)
        moved[kept] = np.arange(kept.size)
        self._replace(np.append(kept, self.num_rows), moved[row_of])
        moved = moved[:-1]
        return to_device(np.where(moved == kept.size, -1, moved), self.device)

    def _replace(self, source: NDArray[np.int64], row_of: NDArray[np.int64]) -> None:
        """Make the table of some of its rows, -1 for one of zeros, the last of them the row of zeros."""
        self._table, self._row_of = with_rows(self._table, source), to_device(row_of, self.device)

    def restore(self, ids: TensorLike | None = None, values: ArrayLike | None = None) -> NDArray[np.int64]:
        """Give pruned ids a row each again.

        Parameters
        ----------
        ids : array_like of int, any shape, optional
            Which ones; all that are pruned by default. Those that have a row keep it.
        values : (n, D) array_like, optional
            The new rows, for the n pruned ids among `ids` in ascending order; zeros by default.

        Returns
        -------
        (n,) ndarray of int64
            The new rows' numbers, in ascending order of the ids.

        Raises
        ------
        IndexError
            An id out of range.
        RuntimeError
            A gradient is pending: step or forget it first.
        TypeError
            Ids that are not integers, values that do not cast safely.
        ValueError
            Values of a wrong shape. After any error nothing has changed.
        """
        self._require_no_grad()
        wanted = np.arange(self.num_embeddings) if ids is None else as_indices(ids, like=self._row_of)
        check_indices(wanted, self.num_embeddings)
        chosen, rows = np.unique(to_device(wanted, HOST).astype(np.int64)), self.num_rows
        places = to_device(self._row_of, HOST)
        pruned = chosen[places[chosen] == rows]
        shape = (pruned.size, self.embedding_dim)
        fill = None if values is None else as_gradient(values, shape, self.weight.dtype, "values", like=self._row_of)
        row_of = np.where(places == rows, rows + pruned.size, places)
        row_of[pruned] = rows + np.arange(pruned.size)
        self._replace(np.concatenate((np.arange(rows), np.full(pruned.size, -1), [rows])), row_of)
        if fill is not None:
            self.weight[rows:] = fill
        return to_device(row_of[pruned], self.device)

    def state_dict(self) -> dict[str, Any]:
        """The row of each id, and what the table has: weight, and with an optimizer its state.

        Returns
        -------
        dict
            Weight, the rows and one of zeros, and state are the layer's own: copy them to keep a snapshot.
        """
        return {"row_of": self.row_of, **self._table.state_dict()}

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Take over what `state_dict` gave, of a layer pruned in any way: the table is made to fit.

        Parameters
        ----------
        saved : mapping
            Of a layer with as many ids and of the same width.

        Raises
        ------
        RuntimeError
            A gradient is pending: step or forget it first.
        TypeError
            Not a mapping, or an entry that is not an array.
        ValueError
            Entries that do not fit. After any error nothing has changed.
        """
        self._require_no_grad()
        require_entries("state_dict", saved, set(self.state_dict()))
        weight = as_array(saved["weight"], "weight")
        require_zeros_last(weight, self.embedding_dim)
        row_of, rows = row_map(saved["row_of"], self.num_embeddings, len(weight) - 1)
        before = self._table, self._row_of
        try:
            self._replace(np.append(np.full(rows, -1), self.num_rows), row_of)
            self._table.load_state_dict({name: saved[name] for name in saved if name != "row_of"})
        except Exception:
            self._table, self._row_of = before
            raise

    def __repr__(self) -> str:
        """Ids, rows and width."""
        kept = f"{self.num_embeddings} ids on {self.num_rows} rows, {self.embedding_dim}"
        rule = "" if self._table.optimizer is None else f", optimizer={self._table.optimizer!r}"
        return f"PrunedEmbedding({kept}{rule}, dtype={self._table.weight.dtype})"
