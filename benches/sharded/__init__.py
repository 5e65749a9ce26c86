"""What a lookup in a table over several ranks sends and takes, and a model of it for many more."""
