"""What a simulated GPU's device plugin puts into each container, as NVIDIA's puts in the driver: figures to replay.

It makes `precision-agent run` take its samples from the replay backend, whatever image the agent comes from. Results
say `simulated`, as all replays do. The file `options` beside this one holds more options, one a line; it is read at
the agent's start.
"""

import sys
from pathlib import Path

if sys.argv[1:2] == ["run"]:
    sys.argv.append("--backend=replay")
    options = Path(__file__).with_name("options")
    if options.exists():
        sys.argv += options.read_text().split()
