// SPDX-License-Identifier: Apache-2.0
// Two kinds of digest; of several digests of a packet the last one is made.

#include <core.p4>
#include <v1model.p4>

header probe_t {
    bit<8>  ask;
    bit<8>  small;
    bit<48> address;
    bit<48> filler;
}

struct headers_t { probe_t probe; }
struct metadata_t { bit<1> unused; }
struct station_t {
    bit<48> address;
    bit<9>  port;
}
struct event_t {
    bit<8>  ask;
    int<16> negative;
    bit<8>  small;
    bit<48> time;
}

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
            digest<station_t>(1, { hdr.probe.address, standard_metadata.ingress_port });
        } else if (hdr.probe.ask == 2) {
            digest<event_t>(2, { hdr.probe.ask, -2, hdr.probe.small, standard_metadata.ingress_global_timestamp });
            hdr.probe.small = 0xff;
        } else if (hdr.probe.ask == 3) {
            digest<station_t>(1, { hdr.probe.address, standard_metadata.ingress_port });
            digest<event_t>(2, { hdr.probe.ask, 7, hdr.probe.small, 48w0 });
        } else if (hdr.probe.ask == 4) {
            digest<station_t>(1, { hdr.probe.address, 511 });
            mark_to_drop(standard_metadata);
        }
    }
}

control E(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) { apply {} }
control C(inout headers_t hdr, inout metadata_t meta) { apply {} }
control D(packet_out packet, in headers_t hdr) { apply { packet.emit(hdr.probe); } }

V1Switch(P(), V(), I(), E(), C(), D()) main;
