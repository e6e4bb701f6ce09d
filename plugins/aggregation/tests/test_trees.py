"""Trees and what their links carry, against routing block by block with networkx."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import networkx
from hypothesis import given, settings
from hypothesis import strategies as st

from echelon.model.fabric.builders import fat_tree, leaf_spine, line, rail_optimised
from echelon.model.fabric.load import build_fabric
from echelon.planning.paths import links_of
from echelon_aggregation.trees import tree_of
from tests.drawing import examples

FABRICS = {
    "leaf-spine": build_fabric(leaf_spine(3, 2, 3)),
    "fat-tree": build_fabric(fat_tree(4)),
    "rails": build_fabric(rail_optimised(3, 3, 2)),
    "line": build_fabric(line(5)),
}


@settings(max_examples=examples(60), deadline=None)
@given(st.sampled_from(sorted(FABRICS)), st.data())
def test_a_block_without_memory_is_counted_link_by_link(name: str, data: st.DataObject) -> None:
    fabric = FABRICS[name]
    hosts = data.draw(
        st.lists(st.sampled_from(sorted(fabric.hosts)), min_size=2, max_size=8, unique=True)
    )
    ends = (*hosts, hosts[0])
    for inner in fabric.shortest_paths.switches(*ends):
        path = (hosts[0], *inner, hosts[0])
        tree = tree_of(path)
        graph = networkx.Graph(links_of(path))
        assert tree.hosts == tuple(hosts)
        assert Counter(tree.links) == Counter(links_of(path))
        assert set(tree.switches) == set(graph) - set(hosts)
        for child, parent in tree.parents.items():
            assert networkx.shortest_path(graph, child, tree.root)[1] == parent
        crossed: Counter[tuple[str, str]] = Counter()
        for host in hosts[1:]:
            crossed.update(pairwise(networkx.shortest_path(graph, host, hosts[0])))
        own_switch = next(iter(graph[hosts[0]]))
        crossed.update([(hosts[0], own_switch), (own_switch, hosts[0])])
        crossed.update(pairwise(networkx.shortest_path(graph, hosts[0], tree.root)))
        crossed.update(networkx.bfs_edges(graph, tree.root))
        assert tree.without_memory == crossed
        assert tree.load(1) == dict.fromkeys(tree.links, 1)
        assert tree.load(0) == crossed
        assert tree.load(0.25) == {link: 0.25 + 0.75 * times for link, times in crossed.items()}
        # The fallback's host receives the blocks of all and sends its own and the result.
        assert crossed[own_switch, hosts[0]] == len(hosts) + 1
        assert crossed[hosts[0], own_switch] == 2
