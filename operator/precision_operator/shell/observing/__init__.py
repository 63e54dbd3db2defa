"""What is read of the cluster: the cache of watched objects, and one look at it as `Observed`.

Writes nothing to the cluster. Remembers only what the cluster refused or ended, which no object shows.
"""
