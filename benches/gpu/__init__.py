"""The parts of ``python benches/device.py``: they need NumPy, Numba, CuPy and numba-cuda, torch and pytest if there."""
