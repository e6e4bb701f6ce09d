// SPDX-License-Identifier: Apache-2.0
// The parser and the deparser.

parser EchelonParser(packet_in packet, out headers_t hdr, inout metadata_t meta,
                     inout standard_metadata_t standard_metadata) {
    state start {
        transition parse_ethernet;
    }

    state parse_ipv4 {
        packet.extract(hdr.ipv4);
        // Ports stand where they are looked for only without options and in the first fragment.
        transition select(hdr.ipv4.ihl, hdr.ipv4.frag_offset, hdr.ipv4.protocol) {
            (5, 0, PROTOCOL_TCP): parse_tcp;
            (5, 0, PROTOCOL_UDP): parse_udp;
            default: accept;
        }
    }
    state parse_udp {
        packet.extract(hdr.udp);
        // Somebody else's datagram to our port may be too short for a shim. What RoCE sends is as long: BTH (12), a header
        // more or data (4), and the invariant CRC (4). Only SEND without data is shorter, and is nobody's.
        transition select(hdr.udp.dst_port, hdr.udp.length >= 8 + SHIM_BYTES) {
            (SHIM_UDP_PORT, true): parse_shim;
            (ROCE_UDP_PORT, true): parse_bth;
            default: accept;
        }
    }

#include "../../shared/parser.p4"
}

control EchelonDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.ethernet);
        packet.emit(hdr.ipv4);
        packet.emit(hdr.tcp);
        packet.emit(hdr.udp);
        packet.emit(hdr.bth);
        packet.emit(hdr.shim);
    }
}
