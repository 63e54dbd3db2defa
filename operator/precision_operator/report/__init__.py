"""One self-contained page from saved figures: verdict in words, figures as inline SVG, and where each comes from.

Pure: reports and results in, text (HTML, SVG) out. No cluster, no clock, no network, no JavaScript.
"""
