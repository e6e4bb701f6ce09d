// SPDX-License-Identifier: Apache-2.0
// What the plan decided for a flow: its path and its ranking, in one entry, so that both change at once.

control Flow(inout headers_t hdr, inout metadata_t meta) {
    DirectCounter<bit<64>>(CounterType_t.PACKETS_AND_BYTES) flow_bytes;

    // Not the actions of shared/rankings themselves: a direct counter has to be counted in each action of its table.
    @id(0x01000111) @name("fixed")
    action by_fixed(port_t port, mac_t dst_mac, queue_t queue) {
        flow_bytes.count();
        fixed(hdr, meta, port, dst_mac, queue);
    }

    @id(0x01000112) @name("deadline")
    action by_deadline(port_t port, mac_t dst_mac, echelonflow_id_t echelonflow, profile_id_t profile,
                       bit<32> offset_ticks) {
        flow_bytes.count();
        deadline(hdr, meta, port, dst_mac, echelonflow, profile, offset_ticks);
    }

    @id(0x01000113) @name("attained")
    action by_attained(port_t port, mac_t dst_mac, group_id_t group, profile_id_t profile) {
        flow_bytes.count();
        attained(hdr, meta, port, dst_mac, group, profile);
    }

    @id(0x01000114) @name("window")
    action by_window(port_t port, mac_t dst_mac, group_id_t group, profile_id_t profile, bit<32> period_ticks) {
        flow_bytes.count();
        window(hdr, meta, port, dst_mac, group, profile, period_ticks);
    }

    action unranked() {
        flow_bytes.count();
    }

    @id(0x02000105)
    table flow {
        key = { meta.flow: exact @name("flow"); }
        actions = {
            by_fixed;
            by_deadline;
            by_attained;
            by_window;
            @defaultonly unranked;
        }
        const default_action = unranked();
        size = FLOW_TABLE_SIZE;
        counters = flow_bytes;
    }

    apply {
        flow.apply();
    }
}
