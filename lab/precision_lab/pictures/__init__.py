"""Screenshots of the dashboards over a made-up fleet: sweeps, plans, the operator's story, a browser.

Every figure here is made up. Never: the demo, and figures for the exporter's tests.
"""
