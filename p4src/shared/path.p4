// SPDX-License-Identifier: Apache-2.0
// What the actions of all rankings do: they send the packet along the path that the plan gave its flow.

action take_path(inout headers_t hdr, inout metadata_t meta, in port_t port, in mac_t dst_mac) {
    meta.egress_port = port;
    hdr.ethernet.dst = dst_mac;
    meta.forwarded = 1;
    meta.slack_key = SLACK_BIAS;
#ifdef RANK_EXPIRES
    // Until a control says otherwise, the rank holds while the packet waits.
    meta.rank_holds_us = 0xFFFFFFFF;
#endif
}
