"""Programs that show how fastemb is used; each runs with ``python -m fastemb.examples.<name>``."""
