// SPDX-License-Identifier: Apache-2.0
// Action profiles shared by two tables, and selectors of three hashes.

#include <core.p4>
#include <v1model.p4>

header probe_t {
    bit<8>  ask;
    bit<8>  answer;
    bit<32> x;
    bit<32> y;
    bit<32> filler;
}

struct headers_t { probe_t probe; }
struct metadata_t { bit<1> unused; }

parser P(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    state start {
        packet.extract(hdr.probe);
        transition accept;
    }
}

control V(inout headers_t hdr, inout metadata_t meta) { apply {} }

control I(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    action_profile(8) shared;
    action_selector(HashAlgorithm.identity, 32w64, 32w32) by_identity;
    action_selector(HashAlgorithm.crc16, 32w64, 32w16) by_crc16;
    action_selector(HashAlgorithm.crc32, 32w64, 32w32) by_crc32;
    direct_counter(CounterType.packets) spread_hits;

    action to(bit<9> port, bit<8> answer) {
        standard_metadata.egress_spec = port;
        hdr.probe.answer = answer;
    }
    action drop() { mark_to_drop(standard_metadata); }

    table one {
        key = { hdr.probe.x: exact; }
        actions = { to; drop; NoAction; }
        implementation = shared;
        size = 16;
    }
    table other {
        key = { hdr.probe.x: lpm; }
        actions = { to; drop; NoAction; }
        implementation = shared;
        size = 16;
    }
    table spread {
        key = { hdr.probe.x: exact; hdr.probe.y: selector; }
        actions = { to; drop; NoAction; }
        implementation = by_identity;
        counters = spread_hits;
        size = 16;
    }
    table spread16 {
        key = { hdr.probe.x: exact; hdr.probe.y: selector; hdr.probe.ask: selector; }
        actions = { to; drop; NoAction; }
        implementation = by_crc16;
        size = 16;
    }
    table spread32 {
        key = { hdr.probe.x: ternary; hdr.probe.y: selector; }
        actions = { to; drop; NoAction; }
        implementation = by_crc32;
        size = 16;
    }

    apply {
        standard_metadata.egress_spec = 1;
        if (hdr.probe.ask == 1) {
            one.apply();
        } else if (hdr.probe.ask == 2) {
            other.apply();
        } else if (hdr.probe.ask == 3) {
            if (spread.apply().hit) {
                hdr.probe.filler = 0xffffffff;
            }
        } else if (hdr.probe.ask == 4) {
            spread16.apply();
        } else if (hdr.probe.ask == 5) {
            spread32.apply();
        }
    }
}

control E(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) { apply {} }
control C(inout headers_t hdr, inout metadata_t meta) { apply {} }
control D(packet_out packet, in headers_t hdr) { apply { packet.emit(hdr.probe); } }

V1Switch(P(), V(), I(), E(), C(), D()) main;
