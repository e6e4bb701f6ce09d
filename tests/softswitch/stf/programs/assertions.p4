// SPDX-License-Identifier: Apache-2.0
// Assertions and assumptions in ingress and egress, and messages to the log.

#include <core.p4>
#include <v1model.p4>

header probe_t {
    bit<8>  ask;
    bit<8>  x;
    bit<16> y;
    bit<80> filler;
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
        if (hdr.probe.ask == 1) {
            assert(hdr.probe.x != 0);
        } else if (hdr.probe.ask == 2) {
            assert(hdr.probe.x < 10 && hdr.probe.y != 0xffff);
        } else if (hdr.probe.ask == 3) {
            assume(hdr.probe.isValid());
            assume(hdr.probe.x == 1);
        } else if (hdr.probe.ask == 4) {
            log_msg("plain");
            log_msg("x {} y {} port {}", { hdr.probe.x, hdr.probe.y, standard_metadata.ingress_port });
        }
        hdr.probe.filler = 1;
    }
}

control E(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    apply {
        if (hdr.probe.ask == 5) {
            assert(hdr.probe.x == 7 || hdr.probe.y > 1);
        }
    }
}
control C(inout headers_t hdr, inout metadata_t meta) { apply {} }
control D(packet_out packet, in headers_t hdr) { apply { packet.emit(hdr.probe); } }

V1Switch(P(), V(), I(), E(), C(), D()) main;
