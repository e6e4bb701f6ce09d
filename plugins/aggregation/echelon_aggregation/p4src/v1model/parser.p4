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
        transition select(hdr.udp.src_port, hdr.udp.dst_port, hdr.udp.length >= 8 + SHIM_BYTES,
                          hdr.udp.length >= 8 + SHIM_BYTES + AGGREGATION_BYTES) {
            (_, SHIM_UDP_PORT, true, _): parse_shim;
            (_, ROCE_UDP_PORT, true, _): parse_bth;
            (_, AGGREGATION_UDP_PORT, _, true): parse_aggregation;
            (AGGREGATION_UDP_PORT, _, _, true): parse_aggregation;
            default: accept;
        }
    }

    state parse_aggregation {
        packet.extract(hdr.shim);
        packet.extract(hdr.aggregation);
        // Whatever has another length or version is forwarded as it is.
        transition select(hdr.aggregation.version, hdr.aggregation.kind, hdr.aggregation.flags[3:3], hdr.udp.length) {
            (AGGREGATION_VERSION, AGGREGATION_CONTRIBUTION, 0, VALUES_UDP_BYTES): parse_values;
            (AGGREGATION_VERSION, AGGREGATION_RESULT, 0, VALUES_UDP_BYTES): parse_values;
            (AGGREGATION_VERSION, AGGREGATION_ANSWER, 0, VALUES_UDP_BYTES): parse_values;
            default: accept;
        }
    }
    state parse_values {
        packet.extract(hdr.values);
        transition accept;
    }

#include "shared/parser.p4"
}

control EchelonDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.ethernet);
        packet.emit(hdr.ipv4);
        packet.emit(hdr.tcp);
        packet.emit(hdr.udp);
        packet.emit(hdr.bth);
        packet.emit(hdr.shim);
        packet.emit(hdr.aggregation);
        packet.emit(hdr.values);
    }
}
