// SPDX-License-Identifier: Apache-2.0
// Ranking `attained` (Aalo, SIGCOMM '15; MLTCP, HotNets '24): the bytes that a group of flows has sent in this
// iteration before the packet, by the length in the IP header, because ingress does not know the length of a frame.
// Retransmissions count.

struct attained_t {
    bit<32> epoch;
    bit<32> bytes;
}

control Attained(inout metadata_t meta) {
    Register<attained_t, group_id_t>(GROUPS, {0x80, 0}) attained_bytes;
    RegisterAction<attained_t, group_id_t, bit<32>>(attained_bytes) count = {
        void apply(inout attained_t sent, out bit<32> before) {
            before = sent.bytes;
            if (sent.epoch == meta.epoch) {
                sent.bytes = sent.bytes |+| meta.ip_bytes;
            }
        }
    };
    RegisterAction<attained_t, group_id_t, bit<32>>(attained_bytes) open = {
        void apply(inout attained_t sent, out bit<32> before) {
            before = 0;
            sent.epoch = meta.epoch;
            sent.bytes = meta.ip_bytes;
        }
    };

    bit<32> before = 0;

    action take_level_key() {
        @in_hash { meta.level_key = before >> ATTAINED_SHIFT; }
    }

    apply {
        if (meta.ranking == Ranking.ATTAINED) {
            if (meta.pass == PASS_FIRST) {
                before = count.execute(meta.group);
            } else {
                before = open.execute(meta.group);
            }
        }
        if (meta.ranking == Ranking.ATTAINED) {
            take_level_key();
        }
    }
}
