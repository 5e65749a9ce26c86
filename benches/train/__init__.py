"""A model from end to end: skip-gram in fastemb, torch and gensim."""
