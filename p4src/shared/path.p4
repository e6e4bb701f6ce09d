// SPDX-License-Identifier: Apache-2.0
// The path that the plan gave the packet's flow. The action of every ranking takes it, so this is included in control
// Flow. An architecture whose direct counters are counted by hand defines COUNT_FLOW.

    action take_path(port_t port, mac_t dst_mac) {
        COUNT_FLOW
        meta.egress_port = port;
        hdr.ethernet.dst = dst_mac;
        meta.forwarded = 1;
        meta.slack_key = SLACK_BIAS;
#ifdef RANK_EXPIRES
        // Until a control says otherwise, the rank holds while the packet waits.
        meta.rank_holds_us = 0xFFFFFFFF;
#endif
    }
