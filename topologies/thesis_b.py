"""mn --custom topologies/thesis_b.py --topo thesis_b[,rate=MBIT]"""

import sys
from pathlib import Path

sys.path.append(
    str(Path((lambda: 0).__code__.co_filename).resolve().parent)
)  # mn gives this file no __file__
import on_mininet

topos = {"thesis_b": on_mininet.topology("thesis_b")}
switches, controllers = on_mininet.switches, on_mininet.controllers
findController = on_mininet.default_controller  # noqa: N816 - the name that mn looks for
