"""The exporter: a stateless process that shows what reports and profiles say as Prometheus metrics.

It only projects: every figure and every verdict was decided elsewhere and stands in a status. It only reads: no rights
to write, no finalizer, no event. Each object is rendered once, when it changes; a scrape joins bytes. It imports the
contract, the core and the cluster's door, and nothing of the operator's shell.
"""
