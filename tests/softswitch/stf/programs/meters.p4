// SPDX-License-Identifier: Apache-2.0
// One meter of each kind: the colour of a packet is written into it.

#include <core.p4>
#include <v1model.p4>

header probe_t {
    bit<8>  ask;
    bit<8>  colour;
    bit<32> index;
    bit<64> filler;
}

struct headers_t { probe_t probe; }
struct metadata_t { bit<2> colour; }

parser P(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    state start {
        packet.extract(hdr.probe);
        transition accept;
    }
}

control V(inout headers_t hdr, inout metadata_t meta) { apply {} }

control I(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    meter(4, MeterType.bytes) byte_meter;
    meter(4, MeterType.packets) packet_meter;
    direct_meter<bit<2>>(MeterType.bytes) byte_police;
    direct_meter<bit<2>>(MeterType.packets) packet_police;

    action police_bytes() { byte_police.read(meta.colour); }
    action police_packets() { packet_police.read(meta.colour); }

    table policed_bytes {
        key = { hdr.probe.index: exact; }
        actions = { police_bytes; NoAction; }
        default_action = NoAction();
        meters = byte_police;
        size = 16;
    }
    table policed_packets {
        key = { hdr.probe.index: ternary; }
        actions = { police_packets; NoAction; }
        default_action = NoAction();
        meters = packet_police;
        size = 16;
    }

    apply {
        standard_metadata.egress_spec = 1;
        if (hdr.probe.ask == 1) {
            byte_meter.execute_meter(hdr.probe.index, meta.colour);
        } else if (hdr.probe.ask == 2) {
            packet_meter.execute_meter(hdr.probe.index, meta.colour);
        } else if (hdr.probe.ask == 3) {
            policed_bytes.apply();
        } else if (hdr.probe.ask == 4) {
            policed_packets.apply();
        }
        hdr.probe.colour = (bit<8>)meta.colour;
    }
}

control E(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) { apply {} }
control C(inout headers_t hdr, inout metadata_t meta) { apply {} }
control D(packet_out packet, in headers_t hdr) { apply { packet.emit(hdr.probe); } }

V1Switch(P(), V(), I(), E(), C(), D()) main;
