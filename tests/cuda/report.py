"""What the compiler makes of each kernel, in a table: ``python -m tests.cuda.report [--write]``.

Needs no GPU and no driver. With ``--write`` the table goes into the README of kernels/cuda, between its two markers.
"""

import functools
import re
import sys

from fastemb.kernels.cuda import launch

from .machine_code import compile_kernel
from .offline import ROOT, TARGETS
from .registry import kernels

README = ROOT / "kernels" / "cuda" / "README.md"
MARKS = "<!-- table: python -m tests.cuda.report --write -->", "<!-- end of the table -->"
WIDTHS = 128, 64, 32, 16
MOST_REGISTERS = 65536 // (2 * launch.THREADS)
"""Of a thread, where two blocks are to fit on a multiprocessor."""


@functools.cache
def machine_code(name, capability):
    """A kernel of the registry as a device of some compute capability would run it."""
    entry = kernels(capability)[name]
    return compile_kernel(entry.function, entry.signature, capability=capability, launch_bounds=launch.THREADS)


def widest(accesses):
    """Bits of the widest of some accesses: ``accesses(bits)`` are those of so many."""
    return next((bits for bits in WIDTHS if accesses(bits)), 0)


def calls(code):
    """What functions that are called do: ``div f64``, ``sqrt f32``, ``pow``; but for pow, they are for rare numbers.

    Without parts of the kernel itself, and what sm_80 calls for a collective of a warp that is not together.
    """
    found = set()
    for name in code.calls:
        if re.search(r"\.L_x_|shflsync|warpsync", name):
            continue
        operation = re.search(r"div|rem|rcp|sqrt|pow", name)
        dtype = re.search(r"[sfu](32|64)|(?<=_)d(?=sqrt|bl)", name)
        found.add(f"{operation[0]} {dtype[0].replace('d', 'f64')}" if operation and dtype else (operation or [name])[0])
    return ", ".join(sorted(found))


COLUMNS = {
    "registers": lambda code: code.registers,
    "stack": lambda code: code.stack,
    "spills": lambda code: code.spills,
    "load": lambda code: widest(code.loads),
    "store": lambda code: widest(code.stores),
    "vector red": lambda code: len(code.reductions(4)) + len(code.reductions(2)),
    "shared": lambda code: code.shared,
    "calls": calls,
}


def table():
    """The lines of the table; what differs between devices is in the order of `TARGETS`."""
    rows = [["kernel", *COLUMNS], ["---", *("---" if name == "calls" else "--:" for name in COLUMNS)]]
    for name in kernels():
        codes = [machine_code(name, capability) for capability in TARGETS]
        cells = ([str(get(code)) for code in codes] for get in COLUMNS.values())
        rows.append([name, *(" / ".join(dict.fromkeys(cell)) for cell in cells)])
    return [f"| {' | '.join(row)} |" for row in rows]


def write(lines):
    """Put the table between the markers of the README."""
    before, _, after = README.read_text().partition(MARKS[0])
    after = after.partition(MARKS[1])[2]
    README.write_text(f"{before}{MARKS[0]}\n\n" + "\n".join(lines) + f"\n\n{MARKS[1]}{after}")


if __name__ == "__main__":
    made = table()
    sys.stdout.write("\n".join(made) + "\n")
    if "--write" in sys.argv[1:]:
        write(made)
