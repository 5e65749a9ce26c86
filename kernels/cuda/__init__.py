"""The kernels on the GPU: Numba's CUDA target, on arrays that already lie in the memory of a device.

The contract is that of `fastemb.kernels`: the same functions with the same parameters, outputs first, nothing written
where an index is bad. What differs:

- A kernel is a plain Python function on flat, C-contiguous arrays; indices and sizes are uint32 and uint64, loops are
  ``while``, and there is no ``//``: Numba wraps negative indices and checks divisors, which costs more than the work.
- ``n``, a whole number that the kernel closes over, is the number of elements in one access: 4, 2 or 1 (8 for
  float16). Whoever launches it sees to it that the address of every row is a multiple of the bytes of an access.
- What Numba cannot say is in `intrin`, the one file with LLVM IR and PTX and the one that imports ``numba.cuda``.
- No fused multiply-add unless asked for (`intrin.fma_rn`): kernels are compiled with NVVM's ``-fma=0``, so that a rule
  has the same bits as on the CPU. Division and square root are rounded to nearest and subnormal numbers are kept;
  only floating-point `intrin.red_add` and `intrin.atomic_add` in float32 flush them to zero.
"""
