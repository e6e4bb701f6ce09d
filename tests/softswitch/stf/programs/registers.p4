// SPDX-License-Identifier: Apache-2.0
// Registers of several widths: written, read, counted up, shared by ingress and egress.

#include <core.p4>
#include <v1model.p4>

header probe_t {
    bit<8>   ask;
    bit<8>   index;
    bit<32>  value;
    bit<128> wide;
}

struct headers_t { probe_t probe; }
struct metadata_t { bit<1> unused; }

register<bit<128>>(4) vast;

parser P(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    state start {
        packet.extract(hdr.probe);
        transition accept;
    }
}

control V(inout headers_t hdr, inout metadata_t meta) { apply {} }

control I(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    register<bit<32>>(8) words;
    register<bit<5>>(8) fives;
    register<int<16>>(4) signs;

    apply {
        standard_metadata.egress_spec = 1;
        bit<32> index = (bit<32>)hdr.probe.index;
        if (hdr.probe.ask == 1) {
            words.write(index, hdr.probe.value);
        } else if (hdr.probe.ask == 2) {
            words.read(hdr.probe.value, index);
        } else if (hdr.probe.ask == 3) {
            bit<32> seen;
            words.read(seen, index);
            seen = seen + 1;
            words.write(index, seen);
            hdr.probe.value = seen;
        } else if (hdr.probe.ask == 4) {
            fives.write(index, (bit<5>)hdr.probe.value);
            bit<5> back;
            fives.read(back, index);
            hdr.probe.value = (bit<32>)back;
        } else if (hdr.probe.ask == 5) {
            signs.write(index, (int<16>)(bit<16>)hdr.probe.value);
            int<16> back;
            signs.read(back, index);
            hdr.probe.value = back < 0 ? 32w1 : 32w0;
        } else if (hdr.probe.ask == 6) {
            vast.write(index, hdr.probe.wide);
        } else if (hdr.probe.ask == 7) {
            @atomic {
                bit<32> held;
                words.read(held, index);
                words.write(index, hdr.probe.value);
                hdr.probe.value = held;
            }
        }
    }
}

control E(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    apply {
        if (hdr.probe.ask == 8) {
            vast.read(hdr.probe.wide, (bit<32>)hdr.probe.index);
        }
    }
}
control C(inout headers_t hdr, inout metadata_t meta) { apply {} }
control D(packet_out packet, in headers_t hdr) { apply { packet.emit(hdr.probe); } }

V1Switch(P(), V(), I(), E(), C(), D()) main;
