"""The first day on a GPU: every assumption that only a GPU can confirm, as steps that fit into commands of ten minutes.

`python -m benchmarks.first_day --list` names the steps. Each runs in a process of its own and within a budget of time;
what fails is kept with its error, and the others go on. Nothing here is part of the product.
"""
