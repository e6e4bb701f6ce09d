// SPDX-License-Identifier: Apache-2.0
// The first byte names a table; the key follows; the answer is the egress port and what the action wrote.

#include <core.p4>
#include <v1model.p4>

header query_t {
    bit<8>  table_number;
    bit<32> x;
    bit<16> y;
    bit<8>  z;
    bit<16> answer;
}

struct headers_t { query_t q; }
struct metadata_t { bit<1> hit; }

parser P(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    state start {
        packet.extract(hdr.q);
        transition accept;
    }
}

control V(inout headers_t hdr, inout metadata_t meta) { apply {} }

control I(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    direct_counter(CounterType.packets_and_bytes) exact_hits;

    action answer(bit<16> value, bit<9> port) {
        hdr.q.answer = value;
        standard_metadata.egress_spec = port;
    }
    action counted(bit<16> value) {
        exact_hits.count();
        hdr.q.answer = value;
        standard_metadata.egress_spec = 1;
    }
    action missed() {
        hdr.q.answer = 0xffff;
        standard_metadata.egress_spec = 1;
    }

    table exact_one {
        key = { hdr.q.x: exact; }
        actions = { counted; missed; }
        default_action = missed();
        counters = exact_hits;
        size = 64;
    }
    table exact_two {
        key = { hdr.q.x: exact; hdr.q.y: exact; }
        actions = { answer; missed; }
        default_action = missed();
        size = 64;
    }
    table prefix {
        key = { hdr.q.x: lpm; }
        actions = { answer; missed; }
        default_action = missed();
        size = 256;
    }
    table exact_prefix {
        key = { hdr.q.x: lpm; hdr.q.z: exact; }
        actions = { answer; missed; }
        default_action = missed();
        size = 256;
    }
    table masked {
        key = { hdr.q.x: ternary; hdr.q.z: exact; }
        actions = { answer; missed; }
        default_action = missed();
        size = 256;
    }
    table ranged {
        key = { hdr.q.y: range; }
        actions = { answer; missed; }
        default_action = missed();
        size = 256;
    }
    table mixed {
        key = { hdr.q.z: ternary; hdr.q.y: range; hdr.q.x: lpm; }
        actions = { answer; missed; }
        default_action = missed();
        size = 256;
    }
    table boxes {
        key = { hdr.q.y: range; hdr.q.z: range; }
        actions = { answer; missed; }
        default_action = missed();
        size = 256;
    }
    table perhaps {
        key = { hdr.q.x: optional; hdr.q.y: optional; }
        actions = { answer; missed; }
        default_action = missed();
        size = 64;
    }
    table constant {
        key = { hdr.q.y: ternary; }
        actions = { answer; missed; }
        const default_action = missed();
        const entries = {
            0x0102: answer(1, 1);
            0x0100 &&& 0xff00: answer(2, 1);
            0x0002 &&& 0x00ff: answer(3, 1);
        }
    }
    table keyless {
        actions = { answer; missed; }
        default_action = missed();
    }

    apply {
        standard_metadata.egress_spec = 1;
        if (hdr.q.table_number == 0) {
            exact_one.apply();
        } else if (hdr.q.table_number == 1) {
            exact_two.apply();
        } else if (hdr.q.table_number == 2) {
            prefix.apply();
        } else if (hdr.q.table_number == 3) {
            exact_prefix.apply();
        } else if (hdr.q.table_number == 4) {
            masked.apply();
        } else if (hdr.q.table_number == 5) {
            ranged.apply();
        } else if (hdr.q.table_number == 6) {
            mixed.apply();
        } else if (hdr.q.table_number == 7) {
            boxes.apply();
        } else if (hdr.q.table_number == 8) {
            perhaps.apply();
        } else if (hdr.q.table_number == 9) {
            constant.apply();
        } else if (hdr.q.table_number == 10) {
            keyless.apply();
        } else if (hdr.q.table_number == 11) {
            mark_to_drop(standard_metadata);
        }
    }
}

control E(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) { apply {} }
control C(inout headers_t hdr, inout metadata_t meta) { apply {} }
control D(packet_out packet, in headers_t hdr) { apply { packet.emit(hdr.q); } }

V1Switch(P(), V(), I(), E(), C(), D()) main;
