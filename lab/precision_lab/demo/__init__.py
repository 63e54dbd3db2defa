"""The demo: a fleet, the chart, the examples, what comes of it, and what stays when it ends.

The top room: nothing imports it but the command line and tests.
"""
