"""Takes samples on all GPUs of the node in step: a process for each GPU, warm-up, calibration of the sensors.

Never: torch or Transformer Engine in this process, and figures of a result: samples are turned into those in `results`.
"""
