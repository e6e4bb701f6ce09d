"""mn --custom topologies/leaf_spine.py
--topo leaf_spine,LEAVES,SPINES[,HOSTS_PER_LEAF[,OVERSUBSCRIPTION]][,rate=MBIT]
"""

import sys
from pathlib import Path

sys.path.append(
    str(Path((lambda: 0).__code__.co_filename).resolve().parent)
)  # mn gives this file no __file__
import on_mininet

topos = {"leaf_spine": on_mininet.topology("leaf_spine")}
switches, controllers = on_mininet.switches, on_mininet.controllers
findController = on_mininet.default_controller  # noqa: N816 - the name that mn looks for
