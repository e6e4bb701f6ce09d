// SPDX-License-Identifier: Apache-2.0
// Ranking `fixed`: a queue that never changes.

@id(0x01000111)
action fixed(inout headers_t hdr, inout metadata_t meta, port_t port, mac_t dst_mac, queue_t queue) {
    take_path(hdr, meta, port, dst_mac);
    meta.ranking = Ranking.FIXED;
    meta.WANTED = queue;
}
