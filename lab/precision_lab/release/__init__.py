"""The product as users get it: images built, pushed and started, the chart installed, its footprint measured.

Never: what the demo shows.
"""
