"""Perses, which draws the dashboards in the lab: a page built by npm and vite, and a small server for it.

The page draws one dashboard from its JSON; queries go through the server to a Prometheus. Grafana itself isn't run in
the lab. The page is built in the user's cache from the pinned lock file, never in the checkout.
"""
