// SPDX-License-Identifier: Apache-2.0
// Ranking `deadline`, the part without state: packets are ranked by the reference time of their EchelonFlow.

@id(0x01000112)
action deadline(inout headers_t hdr, inout metadata_t meta, port_t port, mac_t dst_mac, echelonflow_id_t echelonflow,
                profile_id_t profile, bit<32> DURATION(offset)) {
    take_path(hdr, meta, port, dst_mac);
    meta.ranking = Ranking.DEADLINE;
    meta.echelonflow = echelonflow;
    meta.profile = profile;
    meta.DURATION(offset) = DURATION(offset);
}
