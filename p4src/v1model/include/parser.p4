// SPDX-License-Identifier: Apache-2.0
// The parser, whose states every architecture shares, and the deparser.

parser EchelonParser(packet_in packet, out headers_t hdr, inout metadata_t meta,
                     inout standard_metadata_t standard_metadata) {
    state start {
        transition parse_ethernet;
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
#ifdef AGGREGATION
        packet.emit(hdr.aggregation);
        packet.emit(hdr.values);
#endif
    }
}
