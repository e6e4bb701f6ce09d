// SPDX-License-Identifier: Apache-2.0
// Clones, resubmission, recirculation and multicast, alone and together. Each bit of the first byte asks for one of them;
// egress writes down what it was given.

#include <core.p4>
#include <v1model.p4>

header probe_t {
    bit<8>  ask;        // 1 clone in ingress, 2 clone in egress, 4 resubmit, 8 recirculate, 16 multicast, 32 drop, 64 drop late
    bit<8>  instance;
    bit<16> port;
    bit<16> rid;
    bit<8>  first;      // metadata of list 1
    bit<8>  second;     // metadata of list 2
    bit<8>  neither;    // metadata of no list
    bit<8>  passes;
    bit<32> length;
}

struct headers_t { probe_t probe; }
struct metadata_t {
    @field_list(1) bit<8> first;
    @field_list(1, 2) bit<8> second;
    bit<8> neither;
    @field_list(2) bit<8> passes;
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
        bool again = meta.passes != 0;
        meta.passes = meta.passes + 1;
        if (!again) {
            meta.first = 0x11;
            meta.second = 0x22;
            meta.neither = 0x33;
            if (hdr.probe.ask[2:2] == 1) {
                resubmit_preserving_field_list(2);
            }
        }
        if (hdr.probe.ask[0:0] == 1) {
            clone_preserving_field_list(CloneType.I2E, 1, 1);
        }
        if (hdr.probe.ask[4:4] == 1) {
            standard_metadata.mcast_grp = 1;
        }
        if (hdr.probe.ask[5:5] == 1) {
            mark_to_drop(standard_metadata);
        }
    }
}

control E(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    apply {
        hdr.probe.instance = (bit<8>)standard_metadata.instance_type;
        hdr.probe.port = (bit<16>)standard_metadata.egress_port;
        hdr.probe.rid = standard_metadata.egress_rid;
        hdr.probe.first = meta.first;
        hdr.probe.second = meta.second;
        hdr.probe.neither = meta.neither;
        hdr.probe.passes = meta.passes;
        hdr.probe.length = standard_metadata.packet_length;
        if (standard_metadata.instance_type != 1 && standard_metadata.instance_type != 2) {
            if (hdr.probe.ask[1:1] == 1) {
                clone_preserving_field_list(CloneType.E2E, 2, 2);
            }
            if (hdr.probe.ask[3:3] == 1 && meta.passes < 3) {
                recirculate_preserving_field_list(2);
            }
            if (hdr.probe.ask[6:6] == 1) {
                mark_to_drop(standard_metadata);
            }
        }
    }
}
control C(inout headers_t hdr, inout metadata_t meta) { apply {} }
control D(packet_out packet, in headers_t hdr) { apply { packet.emit(hdr.probe); } }

V1Switch(P(), V(), I(), E(), C(), D()) main;
