"""For every reason that a node can have, a situation that it is the reason of, with the facts of its sentence."""

from collections.abc import Mapping

from tests.support.situation_worlds import Situation
from tests.support.situations_after import CHANGES, ENDS, REFUSED, SLOW, WITHOUT_DETAIL
from tests.support.situations_before import NODES, TURNS

SITUATIONS: Mapping[str, Situation] = NODES | TURNS | REFUSED | ENDS | WITHOUT_DETAIL | SLOW | CHANGES
