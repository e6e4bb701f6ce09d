// SPDX-License-Identifier: Apache-2.0
// The plan's decision for a flow: its path and its ranking, in one entry, so that both change at once.

control Flow(inout headers_t hdr, inout metadata_t meta) {
    direct_counter(CounterType.packets_and_bytes) flow_bytes;

    action take_path(port_t port, mac_t dst_mac) {
        meta.egress_port = port;
        hdr.ethernet.dst = dst_mac;
        meta.forwarded = 1;
        meta.slack_key = SLACK_BIAS;
        // Until a control says otherwise, the rank holds while the packet waits.
        meta.rank_holds_us = 0xFFFFFFFF;
    }

    // Ranking `fixed`: a queue that never changes.
    @id(0x01000111) @name(".fixed")
    action fixed(port_t port, mac_t dst_mac, queue_t queue) {
        take_path(port, dst_mac);
        meta.ranking = Ranking.FIXED;
        meta.wanted = queue;
    }

    // Ranking `deadline`: by the reference time of the flow's EchelonFlow (include/rankings/deadline.p4).
    @id(0x01000112) @name(".deadline")
    action deadline(port_t port, mac_t dst_mac, echelonflow_id_t echelonflow, profile_id_t profile,
                    bit<32> offset_us, bit<32> due_us, bit<LEFT_SHIFT_BITS> left_shift) {
        take_path(port, dst_mac);
        meta.ranking = Ranking.DEADLINE;
        meta.echelonflow = echelonflow;
        meta.profile = profile;
        meta.offset_us = offset_us;
        meta.due_us = due_us;
        meta.left_shift = left_shift;
    }

    // Ranking `attained`: by the bytes that the flow's group has sent (include/rankings/attained.p4).
    @id(0x01000113) @name(".attained")
    action attained(port_t port, mac_t dst_mac, group_id_t group, profile_id_t profile) {
        take_path(port, dst_mac);
        meta.ranking = Ranking.ATTAINED;
        meta.group = group;
        meta.profile = profile;
    }

    // Ranking `window`: by the time left in a period of the flow's group (include/rankings/window.p4).
    @id(0x01000114) @name(".window")
    action window(port_t port, mac_t dst_mac, group_id_t group, profile_id_t profile, bit<32> period_us) {
        take_path(port, dst_mac);
        meta.ranking = Ranking.WINDOW;
        meta.group = group;
        meta.profile = profile;
        meta.period_us = period_us;
    }

    // Ranking `dscp` (RFC 2474): by the code point that the packet arrives with.
    @id(0x01000115) @name(".dscp")
    action dscp(port_t port, mac_t dst_mac, profile_id_t profile) {
        take_path(port, dst_mac);
        meta.ranking = Ranking.DSCP;
        meta.profile = profile;
    }

    @id(0x02000105)
    table flow {
        key = { meta.flow: exact @name("flow"); }
        actions = {
            fixed;
            deadline;
            attained;
            window;
            dscp;
            NoAction;
        }
        default_action = NoAction();
        size = FLOW_TABLE_SIZE;
        counters = flow_bytes;
    }

    apply {
        flow.apply();
    }
}
