"""How the report's and the plan's pages are drawn: SVG by hand, colours, and one HTML document around it.

Pure: no clock, no network, no JavaScript.
"""
