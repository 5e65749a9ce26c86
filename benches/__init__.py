"""Benchmarks of fastemb: index streams, workloads, and the programs that time them."""
