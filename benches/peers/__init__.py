"""fastemb against what other libraries offer for each operation."""
