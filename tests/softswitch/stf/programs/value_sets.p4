// SPDX-License-Identifier: Apache-2.0
// Parser value sets of one field and of several; the answer says which select case was taken.

#include <core.p4>
#include <v1model.p4>

header probe_t {
    bit<8>  ask;
    bit<8>  answer;
    bit<16> x;
    bit<16> y;
    bit<64> filler;
}

struct headers_t { probe_t probe; }
struct metadata_t { bit<8> answer; }
struct both_t {
    bit<16> x;
    bit<16> y;
}
struct masked_t {
    @match(ternary) bit<16> x;
    @match(lpm) bit<16> y;
}

parser P(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    value_set<bit<16>>(4) ports;
    value_set<both_t>(8) pairs;
    value_set<masked_t>(8) patterns;

    state start {
        packet.extract(hdr.probe);
        meta.answer = 0;
        transition select(hdr.probe.ask) {
            1: one;
            2: two;
            3: three;
            default: accept;
        }
    }
    state one {
        transition select(hdr.probe.x) {
            0xffff: constant;
            ports: member;
            0x0100 &&& 0xff00: masked;
            default: accept;
        }
    }
    state two {
        transition select(hdr.probe.x, hdr.probe.y) {
            pairs: member;
            (1, 1): constant;
            default: accept;
        }
    }
    state three {
        transition select(hdr.probe.x, hdr.probe.y) {
            patterns: member;
            (_, 1): masked;
            default: accept;
        }
    }
    state constant {
        meta.answer = 0xc;
        transition accept;
    }
    state member {
        meta.answer = 0xe;
        transition accept;
    }
    state masked {
        meta.answer = 0xa;
        transition accept;
    }
}

control V(inout headers_t hdr, inout metadata_t meta) { apply {} }

control I(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    apply {
        standard_metadata.egress_spec = 1;
        hdr.probe.answer = meta.answer;
    }
}

control E(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) { apply {} }
control C(inout headers_t hdr, inout metadata_t meta) { apply {} }
control D(packet_out packet, in headers_t hdr) { apply { packet.emit(hdr.probe); } }

V1Switch(P(), V(), I(), E(), C(), D()) main;
