// SPDX-License-Identifier: Apache-2.0
// Packets cut in ingress, in egress, in both, and clones of cut packets.

#include <core.p4>
#include <v1model.p4>

header probe_t {
    bit<8>  ask;
    bit<8>  length;
    bit<8>  later;
    bit<8>  instance;
    bit<16> seen;
    bit<64> filler;
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
    apply {
        standard_metadata.egress_spec = 1;
        if (hdr.probe.ask & 1 == 1) {
            truncate((bit<32>)hdr.probe.length);
        }
        if (hdr.probe.ask == 4) {
            clone(CloneType.I2E, 5);
        }
    }
}

control E(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    apply {
        hdr.probe.instance = (bit<8>)standard_metadata.instance_type;
        hdr.probe.seen = (bit<16>)standard_metadata.packet_length;
        if (hdr.probe.ask & 2 == 2) {
            truncate((bit<32>)hdr.probe.later);
        }
    }
}
control C(inout headers_t hdr, inout metadata_t meta) { apply {} }
control D(packet_out packet, in headers_t hdr) { apply { packet.emit(hdr.probe); } }

V1Switch(P(), V(), I(), E(), C(), D()) main;
