"""Which job gets which pool, recipe and size, and when: options, programs, bounds, schedules, conflicts.

Works on options that have rates already; says nothing in words.
"""
