// SPDX-License-Identifier: Apache-2.0
// Random numbers of several widths and ranges.

#include <core.p4>
#include <v1model.p4>

header probe_t {
    bit<8>  ask;
    bit<8>  octet;
    bit<16> low;
    bit<16> high;
    bit<32> wide;
    bit<64> wider;
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
            random(hdr.probe.octet, 8w0x30, 8w0x3f);
        } else if (hdr.probe.ask == 2) {
            bit<16> drawn;
            random(drawn, hdr.probe.low, hdr.probe.high);
            hdr.probe.wide = (bit<32>)drawn;
        } else if (hdr.probe.ask == 3) {
            random(hdr.probe.octet, 8w0, 8w255);
            random(hdr.probe.wide, 32w0, 32w0xffffffff);
            random(hdr.probe.wider, 64w0, 64w0xffffffffffffffff);
        }
    }
}

control E(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) { apply {} }
control C(inout headers_t hdr, inout metadata_t meta) { apply {} }
control D(packet_out packet, in headers_t hdr) { apply { packet.emit(hdr.probe); } }

V1Switch(P(), V(), I(), E(), C(), D()) main;
