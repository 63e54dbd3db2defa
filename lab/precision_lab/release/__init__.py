"""The product as users get it: images built, pushed and started, the chart installed.

Never: what the demo shows.
"""
