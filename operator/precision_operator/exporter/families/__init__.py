"""The metric families: one module for each kind of subject, and the one table of them all.

Values in, rows out: no HTTP, no watch, no store. The docs and the dashboards are made from the same table.
"""
