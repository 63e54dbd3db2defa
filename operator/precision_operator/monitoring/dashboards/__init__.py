"""Dashboards: each panel is defined once, as a value, and written for Grafana here (for Perses, in the lab).

Definitions are pages of rows of panels, without I/O. Time-series panels read recorded or pool series; raw series of
nodes stand in instant tables, or in panels of one named node. Every expression begins with a recorded series or takes
the maximum over exporters, so that two of them, as in a rolling update, change no panel.
"""
