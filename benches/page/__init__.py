"""One static page made from what the benchmark commands left."""
