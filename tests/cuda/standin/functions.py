"""Functions of ``cupy`` and methods of its arrays that NumPy has too: a line with their parameters for each."""

import numpy as np

from . import creation, own
from .array import ndarray
from .calls import offered, table

FUNCTIONS = table("""
all(a, axis=None, out=None, keepdims=False)
allclose(a, b, rtol=1e-05, atol=1e-08, equal_nan=False)
amax(a, axis=None, out=None, keepdims=False)
amin(a, axis=None, out=None, keepdims=False)
any(a, axis=None, out=None, keepdims=False)
append(arr, values, axis=None)
arange(start, stop=None, step=1, dtype=None)
argmax(a, axis=None, *, out=None, keepdims=False)
argmin(a, axis=None, *, out=None, keepdims=False)
argpartition(a, kth, axis=-1)
around(a, decimals=0, out=None)
clip(a, a_min, a_max, out=None)
concatenate(tup, axis=0, out=None, *, dtype=None, casting="same_kind")
count_nonzero(a, axis=None)
cumprod(a, axis=None, dtype=None, out=None)
cumsum(a, axis=None, dtype=None, out=None)
diff(a, n=1, axis=-1, prepend=None, append=None)
dot(a, b, out=None)
einsum(*operands, **kwargs)
eye(N, M=None, k=0, dtype=float, order="C")
flip(a, axis=None)
hstack(tup, *, dtype=None, casting="same_kind")
identity(n, dtype=float)
isclose(a, b, rtol=1e-05, atol=1e-08, equal_nan=False)
matmul(a, b, /, *, out=None)
max(a, axis=None, out=None, keepdims=False)
mean(a, axis=None, dtype=None, out=None, keepdims=False)
min(a, axis=None, out=None, keepdims=False)
outer(a, b, out=None)
prod(a, axis=None, dtype=None, out=None, keepdims=False)
roll(a, shift, axis=None)
round(a, decimals=0, out=None)
stack(tup, axis=0, out=None, *, dtype=None, casting="same_kind")
std(a, axis=None, dtype=None, out=None, ddof=0, keepdims=False)
sum(a, axis=None, dtype=None, out=None, keepdims=False)
take_along_axis(a, indices, axis)
tensordot(a, b, axes=2)
tile(A, reps)
tril(m, k=0)
triu(m, k=0)
var(a, axis=None, dtype=None, out=None, ddof=0, keepdims=False)
vstack(tup, *, dtype=None, casting="same_kind")
""")

FUNCTIONS |= table(
    """
array_split(ary, indices_or_sections, axis=0)
atleast_1d(*arys)
atleast_2d(*arys)
broadcast_to(array, shape)
diagonal(a, offset=0, axis1=0, axis2=1)
expand_dims(a, axis)
moveaxis(a, source, destination)
ravel(a, order="C")
reshape(a, newshape, order="C")
split(ary, indices_or_sections, axis=0)
squeeze(a, axis=None)
swapaxes(a, axis1, axis2)
transpose(a, axes=None)
""",
    view=True,
)

FUNCTIONS |= table("argwhere(a)\nflatnonzero(a)", waits=1)
FUNCTIONS |= table("fill_diagonal(a, val, wrap=False)", plain=True)
FUNCTIONS |= table("bincount(x, weights=None, minlength=None)", waits=2)
FUNCTIONS |= table(
    """
can_cast(from_, to, casting="safe")
iscomplexobj(x)
ndim(a)
promote_types(type1, type2, /)
result_type(*arrays_and_dtypes)
shape(a)
""",
    plain=True,
)
FUNCTIONS |= creation.FUNCTIONS | own.FUNCTIONS

LINALG = table("norm(x, ord=None, axis=None, keepdims=False)", np.linalg)

METHODS = table(
    """
all(self, axis=None, out=None, keepdims=False)
any(self, axis=None, out=None, keepdims=False)
argmax(self, axis=None, out=None, *, keepdims=False)
argmin(self, axis=None, out=None, *, keepdims=False)
argpartition(self, kth, axis=-1)
clip(self, min=None, max=None, out=None)
conj(self)
cumprod(self, axis=None, dtype=None, out=None)
cumsum(self, axis=None, dtype=None, out=None)
dot(self, b, out=None)
flatten(self, order="C")
max(self, axis=None, out=None, keepdims=False)
mean(self, axis=None, dtype=None, out=None, keepdims=False)
min(self, axis=None, out=None, keepdims=False)
prod(self, axis=None, dtype=None, out=None, keepdims=None)
round(self, decimals=0, out=None)
std(self, axis=None, dtype=None, out=None, ddof=0, keepdims=False)
sum(self, axis=None, dtype=None, out=None, keepdims=False)
var(self, axis=None, dtype=None, out=None, ddof=0, keepdims=False)
""",
    np.ndarray,
)
METHODS |= table(
    """
diagonal(self, offset=0, axis1=0, axis2=1)
squeeze(self, axis=None)
swapaxes(self, axis1, axis2)
""",
    np.ndarray,
    view=True,
)
METHODS |= dict([offered("__matmul__(self, other)", np.matmul)])
METHODS |= own.METHODS

for name, method in METHODS.items():
    setattr(ndarray, name, method)

FROM_NUMPY = """
    bool_ complex128 complex64 dtype e euler_gamma finfo float16 float32 float64 floating generic iinfo inexact inf
    int16 int32 int64 int8 int_ integer intp isscalar issubdtype nan newaxis number pi signedinteger uint16 uint32
    uint64 uint8 unsignedinteger
"""
"""What CuPy takes from NumPy as it is."""
