"""The one place that calls Numba's njit: its flags, and a compile cache that cannot break a program."""

import contextlib
import functools
import hashlib
import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
from numba.core.caching import FunctionCache, IndexDataCacheFile
from numpy.typing import NDArray

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
    # so a change anywhere in kernels/cpu, or in what all backends share, makes every cached one stale.
    digest = hashlib.sha256()
    folder = Path(__file__).parent
    for path in [folder.parent / "__init__.py", *sorted(folder.rglob("*.py"))]:
        digest.update(path.read_bytes())
    return digest.hexdigest()


reason_for_no_cache: str | None = None
"""Why compiled kernels are not kept on disk, once that is known."""


def _give_up(reason):
    global reason_for_no_cache
    if reason_for_no_cache is not None:
        return
    reason_for_no_cache = str(reason)
    warnings.warn(
        f"fastemb cannot keep compiled kernels on disk ({reason}): each process compiles them again. "
        f"Set NUMBA_CACHE_DIR to a writable folder, or {CACHE_SWITCH}=0 to say that this is meant.",
        RuntimeWarning,
        stacklevel=3,
    )


def _pieces(function):
    """Names of the jitted functions that a kernel was made of, theirs with them."""
    cells = getattr(function, "__closure__", None) or ()
    parts = (cell.cell_contents.py_func for cell in cells)
    return tuple((part.__module__, part.__qualname__, _pieces(part)) for part in parts)


class _KernelCache(FunctionCache):  # type: ignore[misc]  # Numba has no types
    """Numba's function cache, keyed so that kernels made by a factory hit it, and silent about a disk that fails.

    In ``NUMBA_CACHE_DIR`` all copies of the same sources share a folder: a new environment finds what another one has
    compiled.
    """

    def __init__(self, function):
        super().__init__(function)
        if numba.config.CACHE_DIR:
            self._cache_path = str(Path(numba.config.CACHE_DIR, f"fastemb-{_sources_digest()[:16]}"))

    def _index_key(self, sig, codegen):
        # Numba pickles what a closure holds; a jitted function's pickle has a new random id in each process, so such a
        # kernel would never be found again. The names of its pieces and the digest of all sources identify it.
        return sig, codegen.magic_tuple(), _pieces(self._py_func), _sources_digest()

    def _use_file_for(self, sig, codegen):
        # Numba numbers the compiled variants of a function in one index, without a lock: two processes that compile at
        # once can give one number to two variants. With a file name for each variant there is nothing to number.
        # The sources are not part of the name: files of an older state are overwritten, not left behind.
        variant = sig, codegen.magic_tuple(), _pieces(self._py_func)
        digest = hashlib.sha256(repr(variant).encode()).hexdigest()[:16]
        self._cache_file = IndexDataCacheFile(
            cache_path=self._cache_path,
            filename_base=f"{self._impl.filename_base}-{digest}",
            source_stamp=_sources_digest(),
        )

    def load_overload(self, sig, target_context):
        try:
            self._use_file_for(sig, target_context.codegen())
            return super().load_overload(sig, target_context)
        except Exception:  # noqa: BLE001  a damaged pickle raises anything: forget the index and compile
            with contextlib.suppress(OSError):
                self.flush()
            return None

    def save_overload(self, sig, data):
        try:
            self._use_file_for(sig, data.codegen)
            Path(self._cache_path).mkdir(parents=True, exist_ok=True)
            super().save_overload(sig, data)
        except OSError as error:
            _give_up(error)


def jit(*, fastmath: frozenset[str], parallel: bool = False, inline: bool = False) -> Callable[[Any], Any]:
    """Compile a kernel or a piece of one.

    Parameters
    ----------
    fastmath : frozenset of str
        `EXACT` or `REASSOCIATE`: every kernel says which.
    parallel : bool
        Whether the function has a ``prange`` loop. Such functions are called through `threads.region` alone.
    inline : bool
        Whether it becomes part of every kernel that calls it. A call costs some 50 nanoseconds where arrays are passed,
        whose reference counts are kept; LLVM does not undo that for functions it thinks large.

    Returns
    -------
    callable
        A decorator: nogil, NumPy's division rules, cached on disk where a folder can be written.
    """

    def decorate(function):
        if numba.config.DISABLE_JIT:
            return function
        pieces = _pieces(function)
        if pieces:
            # Functions of one factory have one name, and Numba tells them apart by a number that it counts up in each
            # process: code that two processes compiled could get one symbol, and a third would run one for the other.
            function.__qualname__ += "-" + hashlib.sha256(repr(pieces).encode()).hexdigest()[:16]
        kernel = numba.njit(
            function,
            nogil=True,
            error_model="numpy",
            parallel=parallel,
            fastmath=set(fastmath),
            forceinline=inline,
        )
        if cache_wanted():
            try:
                kernel._cache = _KernelCache(function)
            except (RuntimeError, OSError) as error:
                _give_up(error)
        return kernel

    return decorate


def read_only(array: NDArray[Any]) -> NDArray[Any]:
    """A view of an array that may not be written.

    Numba compiles for such arrays and for others apart, a rule in some seconds: what is only read is made one of these.
    """
    view = array.view()
    view.setflags(write=False)
    return view


def cache_folder() -> str | None:
    """Where compiled kernels are kept, or None when they are not."""
    from .check import first_bad

    cache = getattr(first_bad, "_cache", None)
    return None if reason_for_no_cache else getattr(cache, "cache_path", None)


def why_no_cache() -> str | None:
    """Why `cache_folder` is None; None when it is not."""
    if numba.config.DISABLE_JIT:
        return "NUMBA_DISABLE_JIT is set"
    return reason_for_no_cache if cache_wanted() else f"switched off by {CACHE_SWITCH}"
