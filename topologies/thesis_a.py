"""mn --custom topologies/thesis_a.py --topo thesis_a[,rate=MBIT]"""

import sys
from pathlib import Path

sys.path.append(
    str(Path((lambda: 0).__code__.co_filename).resolve().parent)
)  # mn gives this file no __file__
import on_mininet

topos = {"thesis_a": on_mininet.topology("thesis_a")}
switches, controllers = on_mininet.switches, on_mininet.controllers
findController = on_mininet.default_controller  # noqa: N816 - the name that mn looks for
