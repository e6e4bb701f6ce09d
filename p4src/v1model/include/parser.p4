// SPDX-License-Identifier: Apache-2.0
// Anything that is not understood to the end is still forwarded by what was understood; only what is cut short fails.

parser EchelonParser(packet_in packet, out headers_t hdr, inout metadata_t meta,
                     inout standard_metadata_t standard_metadata) {
    state start {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.ethertype) {
            ETHERTYPE_IPV4: parse_ipv4;
            default: accept;
        }
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
    state parse_tcp {
        packet.extract(hdr.tcp);
        transition accept;
    }
    state parse_udp {
        packet.extract(hdr.udp);
        // Somebody else's datagram to our port may be too short for a shim.
        transition select(hdr.udp.dst_port, hdr.udp.length >= 8 + SHIM_BYTES) {
            (SHIM_UDP_PORT, true): parse_shim;
            default: accept;
        }
    }
    state parse_shim {
        packet.extract(hdr.shim);
        transition accept;
    }
}

control EchelonDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.ethernet);
        packet.emit(hdr.ipv4);
        packet.emit(hdr.tcp);
        packet.emit(hdr.udp);
        packet.emit(hdr.shim);
    }
}
