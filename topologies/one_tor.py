"""mn --custom topologies/one_tor.py --topo one_tor[,SERVERS][,rate=MBIT]"""

import sys
from pathlib import Path

sys.path.append(
    str(Path((lambda: 0).__code__.co_filename).resolve().parent)
)  # mn gives this file no __file__
import on_mininet

topos = {"one_tor": on_mininet.topology("one_tor")}
switches, controllers = on_mininet.switches, on_mininet.controllers
findController = on_mininet.default_controller  # noqa: N816 - the name that mn looks for
