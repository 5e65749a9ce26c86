"""The history of the benchmarks: asv run for the last commits of interest, and published as pages."""
