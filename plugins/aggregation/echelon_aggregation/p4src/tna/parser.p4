// SPDX-License-Identifier: Apache-2.0
// Values are parsed where something is done with them: one half of them, when the packet has come back. Elsewhere they are
// behind what is parsed.

// Lengths of UDP from 44 (8 + SHIM_BYTES + AGGREGATION_BYTES) on, by prefixes.
#define LONG_ENOUGH(state) \
            (0x002C &&& 0xFFFC): state; \
            (0x0030 &&& 0xFFF0): state; \
            (0x0040 &&& 0xFFC0): state; \
            (0x0080 &&& 0xFF80): state; \
            (0x0100 &&& 0xFF00): state; \
            (0x0200 &&& 0xFE00): state; \
            (0x0400 &&& 0xFC00): state; \
            (0x0800 &&& 0xF800): state; \
            (0x1000 &&& 0xF000): state; \
            (0x2000 &&& 0xE000): state; \
            (0x4000 &&& 0xC000): state; \
            (0x8000 &&& 0x8000): state;

#define PARSE_HEADERS \
    state parse_ethernet { \
        packet.extract(hdr.ethernet); \
        transition select(hdr.ethernet.ethertype) { \
            ETHERTYPE_IPV4: parse_ipv4; \
            default: accept; \
        } \
    } \
    state parse_ipv4 { \
        packet.extract(hdr.ipv4); \
        EXTRACTED_IPV4 \
        transition select(hdr.ipv4.ihl, hdr.ipv4.frag_offset, hdr.ipv4.protocol) { \
            (5, 0, PROTOCOL_UDP): parse_udp; \
            default: accept; \
        } \
    } \
    state parse_udp { \
        packet.extract(hdr.udp); \
        transition select(hdr.udp.src_port, hdr.udp.dst_port) { \
            (_, AGGREGATION_UDP_PORT): parse_length; \
            (AGGREGATION_UDP_PORT, _): parse_length; \
            default: accept; \
        } \
    } \
    state parse_length { \
        transition select(hdr.udp.length) { \
            LONG_ENOUGH(parse_aggregation) \
            default: accept; \
        } \
    }

parser EchelonIngressParser(packet_in packet, out headers_t hdr, out metadata_t meta,
                            out ingress_intrinsic_metadata_t ig_intr_md) {
    Checksum() ipv4_checksum;

    state start {
        packet.extract(ig_intr_md);
        packet.advance(PORT_METADATA_SIZE);
        transition select(ig_intr_md.ingress_port) {
            LOOP_PORT: parse_bridge;
            default: make_bridge;
        }
    }
    state make_bridge {
        meta.is_first = 1;
        meta.bridge.setValid();
        meta.bridge.step = STEP_FIRST;
        meta.bridge.values = VALUES_STAY;
        meta.bridge.to = TO_NOBODY;
        meta.bridge.wanted = 0;
        meta.bridge.place = 0;
        meta.bridge.came_from = 0;
        transition parse_ethernet;
    }
    state parse_bridge {
        packet.extract(meta.bridge);
        packet.extract(hdr.ethernet);
        packet.extract(hdr.ipv4);
        packet.extract(hdr.udp);
        packet.extract(hdr.shim);
        packet.extract(hdr.aggregation);
        transition select(meta.bridge.values) {
            VALUES_ADD: parse_half;
            VALUES_WRITE: parse_half;
            VALUES_READ: skip_half;
            VALUES_LOSE: skip_all;
            OTHERS_ADD: parse_both;
            OTHERS_WRITE: parse_both;
            OTHERS_READ: parse_first;
            OTHERS_MAKE: parse_first;
            default: accept;
        }
    }
    state parse_half {
        packet.extract(hdr.half);
        transition accept;
    }
    state skip_half {
        packet.advance(HALF_BITS);
        transition accept;
    }
    state skip_all {
        packet.advance(HALF_BITS);
        packet.advance(HALF_BITS);
        transition accept;
    }
    state parse_both {
        packet.extract(hdr.first_half);
        packet.extract(hdr.half);
        transition accept;
    }
    state parse_first {
        packet.extract(hdr.first_half);
        transition select(meta.bridge.values) {
            OTHERS_READ: skip_half;
            default: accept;
        }
    }
#define EXTRACTED_IPV4 ipv4_checksum.add(hdr.ipv4); meta.bad_checksum = ipv4_checksum.verify();
    PARSE_HEADERS
    state parse_aggregation {
        packet.extract(hdr.shim);
        packet.extract(hdr.aggregation);
        transition select(hdr.aggregation.version, hdr.aggregation.kind, hdr.aggregation.flags, hdr.udp.length) {
            (AGGREGATION_VERSION, AGGREGATION_CONTRIBUTION, 0 &&& AGGREGATION_EMPTY, VALUES_UDP_BYTES): is_with_values;
            (AGGREGATION_VERSION, AGGREGATION_RESULT, 0 &&& AGGREGATION_EMPTY, VALUES_UDP_BYTES): is_with_values;
            (AGGREGATION_VERSION, AGGREGATION_ANSWER, 0 &&& AGGREGATION_EMPTY, VALUES_UDP_BYTES): is_with_values;
            (AGGREGATION_VERSION, AGGREGATION_CONTRIBUTION, AGGREGATION_EMPTY &&& AGGREGATION_EMPTY, EMPTY_UDP_BYTES):
                is_empty;
            (AGGREGATION_VERSION, AGGREGATION_RESULT, AGGREGATION_EMPTY &&& AGGREGATION_EMPTY, EMPTY_UDP_BYTES):
                is_empty;
            (AGGREGATION_VERSION, AGGREGATION_REQUEST, AGGREGATION_EMPTY &&& AGGREGATION_EMPTY, EMPTY_UDP_BYTES):
                is_empty;
            (AGGREGATION_VERSION, AGGREGATION_ANSWER, AGGREGATION_EMPTY &&& AGGREGATION_EMPTY, EMPTY_UDP_BYTES):
                is_empty;
            default: is_malformed;
        }
    }
    state is_with_values {
        meta.form = Form.VALUES;
        transition accept;
    }
    state is_empty {
        meta.form = Form.EMPTY;
        transition accept;
    }
    state is_malformed {
        meta.form = Form.MALFORMED;
        transition accept;
    }
}

parser EchelonEgressParser(packet_in packet, out headers_t hdr, out egress_metadata_t meta,
                           out egress_intrinsic_metadata_t eg_intr_md) {
    state start {
        packet.extract(eg_intr_md);
        packet.extract(meta.bridge);
        transition parse_ethernet;
    }
#undef EXTRACTED_IPV4
#define EXTRACTED_IPV4
    PARSE_HEADERS
    state parse_aggregation {
        packet.extract(hdr.shim);
        packet.extract(hdr.aggregation);
        transition accept;
    }
}
