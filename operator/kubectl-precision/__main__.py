"""Starts the plugin from the folder of its krew archive, by what the launcher beside it was called as."""

import os
import sys

sys.path[:1] = [f"{sys.path[0]}/packages", f"{sys.path[0]}/native/{sys.implementation.cache_tag}-{os.uname().machine}"]
sys.argv[:2] = sys.argv[1:2]

if sys.argv[0] == "kubectl_complete-precision":
    from precision_operator.cli.complete import main
else:
    from precision_operator.cli import main

main()
