"""Monitoring: the recording rules, alerts, dashboards and the page of metrics, all written from Python definitions.

Pure: definitions in, text out. The generator writes the text into the chart and the docs; nothing here is imported by a
running operator or exporter, and the SDK that writes Grafana's JSON is a development dependency.
"""
