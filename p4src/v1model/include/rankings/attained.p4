// SPDX-License-Identifier: Apache-2.0
// Ranking `attained` (Aalo, SIGCOMM '15; MLTCP, HotNets '24): the bytes that a group of flows has sent in this
// iteration before the packet, counted in whole frames. Retransmissions count.

control Attained(inout metadata_t meta, in bit<32> frame_bytes) {
    register<valid_epoch_t>(GROUPS) attained_epoch;
    register<bit<32>>(GROUPS) attained_bytes;

    apply {
        bit<32> index = (bit<32>)meta.group;
        valid_epoch_t stored;
        attained_epoch.read(stored, index);
        if (is_newer(stored, meta.epoch)) {
            meta.level_key = 0;
            attained_epoch.write(index, 1w1 ++ meta.epoch);
        } else {
            attained_bytes.read(meta.level_key, index);
        }
        if (is_newer(stored, meta.epoch) || stored[7:0] == meta.epoch) {
            attained_bytes.write(index, meta.level_key |+| frame_bytes);
        } else {
            meta.ranking = Ranking.NONE;
            meta.traffic_class = CLASS_STALE;
        }
    }
}
