// SPDX-License-Identifier: Apache-2.0
// The states from Ethernet on, to be included in a parser. Anything that is not understood to the end is still forwarded
// by what was understood; only what is cut short fails.
//
// An architecture may define EXTRACTED_IPV4, statements for when the IPv4 header is known, and PARSER_COMPARES if its
// parsers compare numbers.
#ifndef EXTRACTED_IPV4
#define EXTRACTED_IPV4
#endif

    state parse_ethernet {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.ethertype) {
            ETHERTYPE_IPV4: parse_ipv4;
            default: accept;
        }
    }
    state parse_ipv4 {
        packet.extract(hdr.ipv4);
        EXTRACTED_IPV4
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
        // Somebody else's datagram to our port may be too short for a shim. What RoCE sends is as long: BTH (12), a header
        // more or data (4), and the invariant CRC (4). Only SEND without data is shorter, and is nobody's.
#if defined(AGGREGATION)
        transition select(hdr.udp.src_port, hdr.udp.dst_port, hdr.udp.length >= 8 + SHIM_BYTES,
                          hdr.udp.length >= 8 + SHIM_BYTES + AGGREGATION_BYTES) {
            (_, SHIM_UDP_PORT, true, _): parse_shim;
            (_, ROCE_UDP_PORT, true, _): parse_bth;
            (_, AGGREGATION_UDP_PORT, _, true): parse_aggregation;
            (AGGREGATION_UDP_PORT, _, _, true): parse_aggregation;
            default: accept;
        }
#elif defined(PARSER_COMPARES)
        transition select(hdr.udp.dst_port, hdr.udp.length >= 8 + SHIM_BYTES) {
            (SHIM_UDP_PORT, true): parse_shim;
            (ROCE_UDP_PORT, true): parse_bth;
            default: accept;
        }
#else
        // Lengths from 28 (8 + SHIM_BYTES) on, by prefixes.
        transition select(hdr.udp.dst_port, hdr.udp.length) {
            (SHIM_UDP_PORT, 0x001C &&& 0xFFFC): parse_shim;
            (SHIM_UDP_PORT, 0x0020 &&& 0xFFE0): parse_shim;
            (SHIM_UDP_PORT, 0x0040 &&& 0xFFC0): parse_shim;
            (SHIM_UDP_PORT, 0x0080 &&& 0xFF80): parse_shim;
            (SHIM_UDP_PORT, 0x0100 &&& 0xFF00): parse_shim;
            (SHIM_UDP_PORT, 0x0200 &&& 0xFE00): parse_shim;
            (SHIM_UDP_PORT, 0x0400 &&& 0xFC00): parse_shim;
            (SHIM_UDP_PORT, 0x0800 &&& 0xF800): parse_shim;
            (SHIM_UDP_PORT, 0x1000 &&& 0xF000): parse_shim;
            (SHIM_UDP_PORT, 0x2000 &&& 0xE000): parse_shim;
            (SHIM_UDP_PORT, 0x4000 &&& 0xC000): parse_shim;
            (SHIM_UDP_PORT, 0x8000 &&& 0x8000): parse_shim;
            (ROCE_UDP_PORT, 0x001C &&& 0xFFFC): parse_bth;
            (ROCE_UDP_PORT, 0x0020 &&& 0xFFE0): parse_bth;
            (ROCE_UDP_PORT, 0x0040 &&& 0xFFC0): parse_bth;
            (ROCE_UDP_PORT, 0x0080 &&& 0xFF80): parse_bth;
            (ROCE_UDP_PORT, 0x0100 &&& 0xFF00): parse_bth;
            (ROCE_UDP_PORT, 0x0200 &&& 0xFE00): parse_bth;
            (ROCE_UDP_PORT, 0x0400 &&& 0xFC00): parse_bth;
            (ROCE_UDP_PORT, 0x0800 &&& 0xF800): parse_bth;
            (ROCE_UDP_PORT, 0x1000 &&& 0xF000): parse_bth;
            (ROCE_UDP_PORT, 0x2000 &&& 0xE000): parse_bth;
            (ROCE_UDP_PORT, 0x4000 &&& 0xC000): parse_bth;
            (ROCE_UDP_PORT, 0x8000 &&& 0x8000): parse_bth;
            default: accept;
        }
#endif
    }
    state parse_bth {
        packet.extract(hdr.bth);
        transition accept;
    }
    state parse_shim {
        packet.extract(hdr.shim);
        transition accept;
    }
#ifdef AGGREGATION
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
#endif
