"""The arithmetic of the method: order and duration of measurement slots, full depth, loss runs, differences.

Pure and seeded: no clock, no device. Never: torch, Transformer Engine, sensors.
"""
