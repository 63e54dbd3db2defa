"""Which shard and which group of it a node's series are in: few nodes move when a shard is added."""

from functools import lru_cache
from hashlib import blake2b

MOST_SHARDS = 512
GROUPS = 16
"""Groups of nodes in one shard: a report that changes has its group compressed again, not its shard."""
_STEP = 2862933555777941757
_WORD = (1 << 64) - 1


@lru_cache(maxsize=1 << 17)
def place(node: str, shards: int) -> tuple[int, int]:
    """(shard, group) of a node, the same in every process."""
    key = int.from_bytes(blake2b(node.encode("utf-8", "replace"), digest_size=8).digest(), "big")
    return bucket(key, shards), bucket(key ^ _STEP, GROUPS)


def bucket(key: int, buckets: int) -> int:
    """Jump consistent hash (Lamping, Veach 2014, https://arxiv.org/abs/1406.2294): 0 to buckets - 1."""
    bucket, after = -1, 0
    while after < buckets:
        bucket = after
        key = (key * _STEP + 1) & _WORD
        after = int((bucket + 1) * ((1 << 31) / ((key >> 33) + 1)))
    return bucket
