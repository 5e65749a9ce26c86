"""What stands before and after each function of NumPy that is offered as one of CuPy."""

import inspect

import numpy as np

from . import devices
from .array import from_device, held
from .counts import counts

ARRAYS = {"a", "ar", "arr", "array", "ary", "arys", "m", "self", "x"}
"""Parameters that CuPy calls so take arrays of a device and nothing else."""


def on_host(value, name=""):
    """Memory of the host in place of each array; TypeError for what lies on the host already."""
    given = from_device(value)
    if given is not None:
        return given._host
    if isinstance(value, np.ndarray) or name in ARRAYS:
        msg = f"Unsupported type {type(value)}: not an array of CuPy"
        raise TypeError(msg)
    if isinstance(value, (list, tuple)):
        return type(value)(on_host(part, "a" if name == "tup" else "") for part in value)
    return value


def arrays_in(values):
    """The arrays in arguments and in lists of them."""
    for value in values:
        given = from_device(value)
        if given is not None:
            yield given
        elif isinstance(value, (list, tuple)):
            yield from arrays_in(value)


def on_device(result, arguments):
    """An array of the device for each result: one that was given, a view of one, or a new one in C order."""
    if isinstance(result, (list, tuple)):
        return type(result)(on_device(part, arguments) for part in result)
    host = np.asarray(result)
    host.flags.writeable = True  # NumPy has views that are not
    for given in arguments:
        if host is given._host:
            return given
        if host.base is not None and np.may_share_memory(host, given._host):
            return given._view_of(host)
    return held(np.require(host, requirements="C"))


def offered(line, function=None, *, view=False, plain=False, waits=0):
    """(name, function) of CuPy, from a line with its name and parameters, and the function of NumPy that it equals.

    A `view` may be made of an array on any device; what is `plain` is no array; the host waits `waits` times.
    """
    name, _, parameters = line.strip().partition("(")
    function = getattr(np, name) if function is None else function
    signature = inspect.signature(eval(f"lambda {parameters[:-1]}: None"))
    known = signature.parameters

    def call(*args, **kwargs):
        bound = signature.bind(*args, **kwargs).arguments
        positional, keywords = [], {}
        for key, value in bound.items():
            if known[key].kind is inspect.Parameter.VAR_POSITIONAL:
                positional += [on_host(part, key) for part in value]
            elif known[key].kind is inspect.Parameter.VAR_KEYWORD:
                keywords |= {k: on_host(part) for k, part in value.items()}
            elif known[key].default is inspect.Parameter.empty:
                positional.append(on_host(value, key))
            elif value is not known[key].default:
                keywords[key] = on_host(value)
        given = list(arrays_in([*args, *kwargs.values()]))
        if not view:
            devices.require_current(*given)
            counts.operations += 1
        counts.synchronisations += waits
        with np.errstate(all="ignore"):
            result = function(*positional, **keywords)
        return result if plain else on_device(result, given)

    call.__name__, call.__signature__ = name, signature
    return name, call


def table(lines, module=np, **how):
    """Several `offered` functions, one a line, of the same names in a module of NumPy."""
    names = [line.strip() for line in lines.strip().splitlines()]
    return dict(offered(line, getattr(module, line.partition("(")[0]), **how) for line in names)
