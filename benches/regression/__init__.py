"""The regression gate: two revisions in turn, in fresh processes; in one process, ratios to NumPy against floors."""
