"""How commands end: one table of exit codes, stable, for scripts; those of the agent's program end with its own too."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Code:
    """One way to end. `meaning` stands in the docs."""

    number: int
    name: str
    meaning: str


DONE = Code(0, "Done", "The answer is on stdout; notes on stderr say what could not be checked.")
CLUSTER = Code(1, "Cluster", "The API server can't be reached, refuses the credentials, or has a problem of its own.")
WRONG_INPUT = Code(
    2, "WrongInput", "An option, a file or a name is wrong: no such profile, node or pool; the nearest ones are named."
)
NO_RIGHT = Code(3, "NoRight", "A right is missing; the message names verb, resource and namespace.")
NO_CRDS = Code(4, "NoCRDs", "The cluster has no PrecisionProfiles: the chart is not installed there.")
NO_ANSWER = Code(
    5, "NoAnswer", "There is no result yet, the two sides of a comparison can't be compared, or a plan's limits clash."
)
NO_PROGRAM = Code(6, "NoProgram", "What this command needs is not installed; the message says how to install it.")
SLOWER = Code(7, "Slower", "compare --fail-if-slower: B is slower than A beyond noise.")
NOT_KNOWN = Code(
    8,
    "NotKnown",
    "plan: its time or its tries ran out. Whether there is a plan is not known; the message says what to do.",
)
INTERRUPTED = Code(130, "Interrupted", "Ctrl-C, for example to end --watch.")

CODES = (DONE, CLUSTER, WRONG_INPUT, NO_RIGHT, NO_CRDS, NO_ANSWER, NO_PROGRAM, SLOWER, NOT_KNOWN, INTERRUPTED)
