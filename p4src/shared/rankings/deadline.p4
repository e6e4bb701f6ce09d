// SPDX-License-Identifier: Apache-2.0
// Ranking `deadline`, the part without state. Slack = reference + offset - now, in microseconds, saturated to 32 bits
// and biased to an unsigned key that orders as slacks do.

@id(0x01000112)
action deadline(inout headers_t hdr, inout metadata_t meta, port_t port, mac_t dst_mac, echelonflow_id_t echelonflow,
                profile_id_t profile, bit<32> offset_us) {
    take_path(hdr, meta, port, dst_mac);
    meta.ranking = Ranking.DEADLINE;
    meta.echelonflow = echelonflow;
    meta.profile = profile;
    meta.offset_us = offset_us;
}

control Slack(inout metadata_t meta, in time_us_t now) {
    apply {
        bit<48> slack = meta.reference_us + (time_us_t)meta.offset_us - now;
        bit<17> top = slack[47:31];
        if (top == 0 || top == 0x1FFFF) {
            meta.slack_key = slack[31:0] ^ SLACK_BIAS;
        } else if (slack[47:47] == 1) {
            meta.slack_key = 0;
        } else {
            meta.slack_key = 0xFFFFFFFF;
        }
    }
}
