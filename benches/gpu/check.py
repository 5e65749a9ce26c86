"""Is a result right, and has it the same bits twice?"""

import dataclasses

import numpy as np

from . import problems

TOLERANCES = {"float32": 1e-5, "float16": 2e-2}


class WrongResultError(AssertionError):
    """A result is not that of plain NumPy."""


def host(array):
    """A NumPy array of CuPy's, torch's or NumPy's."""
    if hasattr(array, "get"):
        return array.get()
    return array if isinstance(array, np.ndarray) else array.detach().cpu().numpy()


def _difference(case, found, wanted):
    """What is wrong with the arrays of a way, or None; fewer of them than wanted are compared."""
    tolerance = TOLERANCES[case.dtype]
    for mine, right in zip(found, wanted, strict=False):
        made = host(mine)
        if made.shape != right.shape or made.dtype != right.dtype:
            return f"{made.dtype} {made.shape} where {right.dtype} {right.shape} was due"
        near = np.isclose(made, right, rtol=tolerance, atol=tolerance)
        if not near.all():
            return f"{near.size - np.count_nonzero(near):,} of {near.size:,} numbers are wrong"
    return None


def compare(case, tools):
    """Run all ways to a case on few rows against plain NumPy; WrongResultError where fastemb's differs.

    Returns
    -------
    (bool, dict)
        Whether fastemb's has the bits of NumPy; what is wrong with each peer whose result is another one.
    """
    case = problems.small(case)
    on_host = problems.host_arrays(case)
    wanted = problems.expected(case, on_host)
    given = _copied(on_host, tools.xp)
    ours, *peers = problems.ways(case, given, tools)
    found = ours.results()
    wrong = _difference(case, found, wanted)
    if wrong:
        msg = f"{case}: {wrong}"
        raise WrongResultError(msg)
    same_bits = all(host(mine).tobytes() == right.tobytes() for mine, right in zip(found, wanted, strict=True))
    differences = {}
    for way in peers:
        _restore(case, given, on_host, way, tools.xp)
        found, error = attempt(way.results)
        differences[way.name] = error or _difference(case, found, wanted)
    return same_bits, {name: text for name, text in differences.items() if text}


def _copied(on_host, xp):
    def copy(array):
        return xp.array(array, copy=True)

    return problems.Arrays(copy(on_host.weight), copy(on_host.ids), copy(on_host.offsets), copy(on_host.grad))


def _restore(case, given, on_host, way, xp):
    """Make a way's arrays as they were: the table where it is changed, else no number at all."""
    if case.op in ("scatter", "update"):
        given.weight[...] = xp.asarray(on_host.weight)
    else:
        for array in way.arrays or ():
            array.fill(np.nan)


def same_bits_again(case, tools):
    """Whether fastemb's way, from new arrays of full size, gives the same bits twice."""
    return _digest(case, tools) == _digest(case, tools)


def _digest(case, tools):
    ours = problems.ways(case, problems.device_arrays(case, tools.xp), dataclasses.replace(tools, torch=None))[0]
    sums = []
    for array in ours.results():
        words = array.reshape(-1).view(np.uint16 if array.dtype.itemsize == 2 else np.uint32)
        sums.append(int(words.sum(dtype=np.uint64)))
    return sums


def attempt(call, *arguments):
    """(what a call returns, None), or (None, what it raises in a line): a case that fails does not stop the others."""
    try:
        return call(*arguments), None
    except Exception as error:  # noqa: BLE001
        text = " ".join(str(error).split())
        return None, f"{type(error).__name__}: {text}"[:300]
