"""Sines to 50 digits, gradients by differences, a tensor that can be read but once, and fields with ids."""

import decimal
from decimal import Decimal

import numpy as np

PI = Decimal("3.1415926535897932384626433832795028841971693993751058209749445923078164062862089986280348253421")
FIELDS = {"word": (40, 5), "tag": (7, 3), "place": (200, 17)}


def sine_and_cosine(angle):
    """Both, to 50 digits and more: Taylor's series of the angle less whole turns."""
    with decimal.localcontext(prec=90):
        angle = angle.remainder_near(2 * PI)
        sums, term, k = [Decimal(0), Decimal(0)], Decimal(1), 0
        while abs(term) > Decimal("1e-60"):
            sums[k % 2] += -term if k % 4 > 1 else term
            k += 1
            term *= angle / k
    return sums[1], sums[0]


def exact_row(position, width, base=10000):
    """What `SinusoidalPositions` should give for a position: decimals."""
    with decimal.localcontext(prec=90):
        angles = [position * (-2 * Decimal(base).ln() * i / width).exp() for i in range(-(-width // 2))]
    return [value for angle in angles for value in sine_and_cosine(angle)][:width]


def largest_error(got, exact):
    """The largest absolute error of floats against decimals."""
    assert len(got) == len(exact)
    return max(abs(Decimal(float(g)) - e) for g, e in zip(got, exact, strict=True))


def numeric_gradient(array, loss, step=1e-5):
    """Central differences of a loss in every element."""
    gradient = np.full(array.shape, np.nan)
    for at in np.ndindex(array.shape):
        kept, losses = array[at], []
        for sign in (1, -1):
            array[at] = kept + sign * step
            losses.append(loss())
        array[at] = kept
        gradient[at] = (losses[0] - losses[1]) / (2 * step)
    return gradient


class Once:
    """A tensor that is handed over only once."""

    def __init__(self, array):
        self.array, self.__dlpack_device__ = array, array.__dlpack_device__

    def __dlpack__(self, **options):
        array, self.array = self.array, None
        return array.__dlpack__(**options)


def ids_of(rng, shape, sizes=FIELDS):
    """Ids in range by field, int64."""
    return {name: np.asarray(rng.integers(0, rows, shape)) for name, (rows, _) in sizes.items()}


def tables_of(layer):
    """All arrays that a layer may change, those of its optimizers included."""
    found = []
    for table in layer.tables().values():
        found += [table.weight, *(table.state.arrays().values() if table.state else ())]
        found += [table.state.missed.last] if table.state and table.state.missed else []
    return found
