"""How fast a job runs: measured evidence, published rows, laws between them, bands, memory and stragglers.

From a pool, a recipe and a size to a rate with its band. Nothing is chosen here.
"""
