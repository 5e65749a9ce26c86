"""The one place that calls Numba's njit: its flags, and a compile cache that cannot break a program."""

import contextlib
import functools
import hashlib
import os
import warnings
from pathlib import Path

import numba
from numba.core.caching import FunctionCache

EXACT: frozenset[str] = frozenset()
"""No fastmath flag: IEEE results in the order written, so `cpu` and `reference` agree bit for bit."""

REASSOCIATE = frozenset({"reassoc", "contract", "nsz"})
"""A reduction may be split over vector lanes; NaN and inf still mean what they mean."""

CACHE_SWITCH = "FASTEMB_CACHE"
"""Set this environment variable to 0 to compile in every process and write no file."""


def cache_wanted() -> bool:
    """Whether compiled kernels may be kept on disk."""
    return os.environ.get(CACHE_SWITCH, "1").strip().lower() not in {"0", "off", "false", "no"}


@functools.cache
def _sources_digest():
    # Numba looks at the file of the outer function alone. Kernels inline pieces of other files and freeze constants,
    # so a change anywhere in kernels/ makes every cached one stale.
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parents[1].rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


_warned = False


def _warn_once(reason):
    global _warned
    if _warned:
        return
    _warned = True
    warnings.warn(
        f"fastemb cannot keep compiled kernels on disk ({reason}): each process compiles them again. "
        f"Set NUMBA_CACHE_DIR to a writable folder, or {CACHE_SWITCH}=0 to say that this is meant.",
        RuntimeWarning,
        stacklevel=3,
    )


class _KernelCache(FunctionCache):  # type: ignore[misc]  # Numba has no types
    """Numba's function cache, keyed so that kernels made by a factory hit it, and silent about a disk that fails."""

    def _index_key(self, sig, codegen):
        # Numba pickles what a closure holds; a jitted function's pickle has a new random id in each process, so such a
        # kernel would never be found again. The names of the pieces and the digest of all sources identify it.
        pieces = tuple(cell.cell_contents.__qualname__ for cell in self._py_func.__closure__ or ())
        return sig, codegen.magic_tuple(), pieces, _sources_digest()

    def load_overload(self, sig, target_context):
        try:
            return super().load_overload(sig, target_context)
        except Exception:  # noqa: BLE001  a damaged pickle raises anything: forget the index and compile
            with contextlib.suppress(OSError):
                self.flush()
            return None

    def save_overload(self, sig, data):
        try:
            super().save_overload(sig, data)
        except OSError as error:
            _warn_once(error)


def jit(*, fastmath, parallel=False):
    """Compile a kernel or a piece of one.

    Parameters
    ----------
    fastmath : frozenset of str
        `EXACT` or `REASSOCIATE`: every kernel says which.
    parallel : bool
        Whether the function has a ``prange`` loop. Such functions are called through `threads.region` alone.

    Returns
    -------
    callable
        A decorator: nogil, NumPy's division rules, cached on disk where a folder can be written.
    """

    def decorate(function):
        kernel = numba.njit(function, nogil=True, error_model="numpy", parallel=parallel, fastmath=set(fastmath))
        if cache_wanted() and not numba.config.DISABLE_JIT:
            try:
                kernel._cache = _KernelCache(function)
            except (RuntimeError, OSError) as error:
                _warn_once(error)
        return kernel

    return decorate


def cache_folder() -> str | None:
    """Where compiled kernels are kept, or None when they are not."""
    from .check import first_bad

    cache = getattr(first_bad, "_cache", None)
    return getattr(cache, "cache_path", None)
