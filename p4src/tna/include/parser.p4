// SPDX-License-Identifier: Apache-2.0
// Anything that is not understood to the end is still forwarded by what was understood; only what is cut short fails.

parser EchelonIngressParser(packet_in packet, out headers_t hdr, out metadata_t meta,
                            out ingress_intrinsic_metadata_t ig_intr_md) {
    Checksum() ipv4_checksum;

    state start {
        packet.extract(ig_intr_md);
        transition select(ig_intr_md.resubmit_flag) {
            1: parse_resubmit;
            default: parse_port_metadata;
        }
    }
    state parse_resubmit {
        packet.extract(meta.resubmit);
#if __TARGET_TOFINO__ != 1
        packet.advance(64);
#endif
        transition select(meta.resubmit.tag[13:12]) {
            PASS_ITERATION: parse_iteration;
            default: parse_open;
        }
    }
    state parse_iteration {
        meta.pass = PASS_ITERATION;
        transition parse_ethernet;
    }
    state parse_open {
        meta.pass = PASS_OPEN;
        transition parse_ethernet;
    }
    state parse_port_metadata {
        packet.advance(PORT_METADATA_SIZE);
        transition parse_ethernet;
    }

    state parse_ipv4 {
        packet.extract(hdr.ipv4);
        ipv4_checksum.add(hdr.ipv4);
        meta.bad_checksum = ipv4_checksum.verify();
        // Ports stand where they are looked for only without options and in the first fragment.
        transition select(hdr.ipv4.ihl, hdr.ipv4.frag_offset, hdr.ipv4.protocol) {
            (5, 0, PROTOCOL_TCP): parse_tcp;
            (5, 0, PROTOCOL_UDP): parse_udp;
            default: accept;
        }
    }

#include "../../shared/parser.p4"
#include "parse_udp.p4"
}

parser EchelonEgressParser(packet_in packet, out headers_t hdr, out egress_metadata_t meta,
                           out egress_intrinsic_metadata_t eg_intr_md) {
    state start {
        packet.extract(eg_intr_md);
        packet.extract(meta.bridge);
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

#include "../../shared/parser.p4"
#include "parse_udp.p4"
}
