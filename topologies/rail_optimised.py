"""mn --custom topologies/rail_optimised.py
--topo rail_optimised,SERVERS,RAILS[,SPINES[,OVERSUBSCRIPTION]][,rate=MBIT]
"""

import sys
from pathlib import Path

sys.path.append(
    str(Path((lambda: 0).__code__.co_filename).resolve().parent)
)  # mn gives this file no __file__
import on_mininet

topos = {"rail_optimised": on_mininet.topology("rail_optimised")}
switches, controllers = on_mininet.switches, on_mininet.controllers
findController = on_mininet.default_controller  # noqa: N816 - the name that mn looks for
