// SPDX-License-Identifier: Apache-2.0
// Ranking `window`, the part without state: packets are ranked by the time left in a period of their group.

@id(0x01000114)
action window(inout headers_t hdr, inout metadata_t meta, port_t port, mac_t dst_mac, group_id_t group,
              profile_id_t profile, bit<32> DURATION(period)) {
    take_path(hdr, meta, port, dst_mac);
    meta.ranking = Ranking.WINDOW;
    meta.group = group;
    meta.profile = profile;
    meta.DURATION(period) = DURATION(period);
}
