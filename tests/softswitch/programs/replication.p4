// SPDX-License-Identifier: Apache-2.0
// The first byte asks for one way of making, repeating or ending packets; egress writes down what it was given.

#include <core.p4>
#include <v1model.p4>

header order_t {
    bit<8>  ask;
    bit<8>  instance;
    bit<16> rid;
    bit<16> port;
    bit<8>  kept;
    bit<8>  lost;
    bit<32> length;
    bit<8>  pass;
}
header extra_t { bit<32> filler; }

struct headers_t {
    order_t order;
    extra_t extra;
}
struct metadata_t {
    @field_list(1) bit<8> kept;
    bit<8> lost;
    @field_list(2) bit<8> again;
}
struct event_t {
    bit<8>  ask;
    bit<16> port;
    int<16> negative;
}

parser P(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    state start {
        packet.extract(hdr.order);
        transition accept;
    }
}

control V(inout headers_t hdr, inout metadata_t meta) { apply {} }

control I(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    apply {
        standard_metadata.egress_spec = 1;
        meta.kept = 0x55;
        meta.lost = 0x66;
        if (hdr.order.ask == 1) {
            clone_preserving_field_list(CloneType.I2E, 7, 1);
            hdr.order.pass = 0x11;
        } else if (hdr.order.ask == 3) {
            if (meta.again < 3) {
                meta.again = meta.again + 1;
                hdr.order.pass = 0x77;
                resubmit_preserving_field_list(2);
            } else {
                hdr.order.pass = meta.again;
            }
        } else if (hdr.order.ask == 5) {
            standard_metadata.mcast_grp = 9;
        } else if (hdr.order.ask == 6) {
            digest<event_t>(1, { hdr.order.ask, (bit<16>)standard_metadata.ingress_port, -3 });
        } else if (hdr.order.ask == 7) {
            truncate(10);
        } else if (hdr.order.ask == 8) {
            mark_to_drop(standard_metadata);
        } else if (hdr.order.ask == 10) {
            hdr.extra.setValid();
            hdr.extra.filler = 0xdeadbeef;
        } else if (hdr.order.ask == 11) {
            standard_metadata.priority = 6;
        } else if (hdr.order.ask == 12) {
            assert(hdr.order.pass == 0);
        } else if (hdr.order.ask == 13) {
            resubmit_preserving_field_list(0);
        } else if (hdr.order.ask == 14) {
            log_msg("order {} of port {}", { hdr.order.ask, standard_metadata.ingress_port });
            log_msg("nothing to add");
        } else if (hdr.order.ask == 15) {
            hdr.order.pass = 1;
            exit;
        } else if (hdr.order.ask == 16) {
            standard_metadata.mcast_grp = 10;
        }
        if (hdr.order.ask == 15) {
            hdr.order.pass = 2;
        }
    }
}

control E(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    apply {
        hdr.order.instance = (bit<8>)standard_metadata.instance_type;
        hdr.order.rid = standard_metadata.egress_rid;
        hdr.order.port = (bit<16>)standard_metadata.egress_port;
        hdr.order.kept = meta.kept;
        hdr.order.lost = meta.lost;
        hdr.order.length = standard_metadata.packet_length;
        if (hdr.order.ask == 2 && standard_metadata.instance_type == 0) {
            clone_preserving_field_list(CloneType.E2E, 7, 1);
            hdr.order.pass = 0x22;
        } else if (hdr.order.ask == 4 && hdr.order.pass < 2) {
            hdr.order.pass = hdr.order.pass + 1;
            recirculate_preserving_field_list(1);
        } else if (hdr.order.ask == 9) {
            mark_to_drop(standard_metadata);
        }
    }
}

control C(inout headers_t hdr, inout metadata_t meta) { apply {} }

control D(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.order);
        packet.emit(hdr.extra);
    }
}

V1Switch(P(), V(), I(), E(), C(), D()) main;
