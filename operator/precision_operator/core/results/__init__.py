"""What came back from the nodes: one reading of a report as numbers, and the only medians over nodes.

Profile status, exporter, report page, planner and plugin take a report's figures from here. None of them parses a
figure, or decides by itself whether it may be used.
"""
