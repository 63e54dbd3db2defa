"""Whether one tenant interferes with others, as properties over random worlds.

What it makes changes nothing for others but by what it holds (worlds, in_memory). Beside its profiles others start as
soon, and have their share (shared_fleet). For its pods few agents are ended in vain (hostile_waits).
No policy of the chart is on: none of its objects is refused.
"""
