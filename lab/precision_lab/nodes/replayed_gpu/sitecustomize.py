"""What a simulated GPU's device plugin puts into each container, as NVIDIA's puts in the driver: figures to replay.

It makes `precision-agent run` take its samples from the replay backend, whatever image the agent comes from. Results
say `simulated`, as all replays do. The file `options` beside this one holds more options, one a line; it is read at
the agent's start. Where there is a file `instead.py`, it runs in the agent's place: an image that is not ours.
"""

import os
import sys
import traceback
from pathlib import Path

if sys.argv[1:2] == ["run"]:
    sys.argv.append("--backend=replay")
    options = Path(__file__).with_name("options")
    if options.exists():
        sys.argv += options.read_text().split()
    instead = Path(__file__).with_name("instead.py")
    if instead.exists():
        code = 0
        try:
            exec(compile(instead.read_text(), str(instead), "exec"), {"__name__": "__main__"})
        except BaseException:
            traceback.print_exc()
            code = 1
        sys.stdout.flush()
        os._exit(code)  # an exception in this file would be printed and passed over
