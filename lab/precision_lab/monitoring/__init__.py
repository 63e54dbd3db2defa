"""A real Prometheus, its backfill, prometheus-operator's definitions, and Perses for the page of dashboards.

Never: the definitions of dashboards and rules, which are the product's.
"""
