// SPDX-License-Identifier: Apache-2.0
// Ranking `attained`, the part without state: packets of a group are ranked by the bytes that it has sent.

@id(0x01000113)
action attained(inout headers_t hdr, inout metadata_t meta, port_t port, mac_t dst_mac, group_id_t group,
                profile_id_t profile) {
    take_path(hdr, meta, port, dst_mac);
    meta.ranking = Ranking.ATTAINED;
    meta.group = group;
    meta.profile = profile;
}
