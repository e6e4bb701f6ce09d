// SPDX-License-Identifier: Apache-2.0
// What a packet selects by itself: a stack's element as a table's key or to be copied; constant entries of a table with
// an action profile; a parser value set of two fields; lengths as egress sees them.

#include <core.p4>
#include <v1model.p4>

header ask_t {
    bit<8>  kind;
    bit<8>  index;
    bit<8>  low;
    bit<8>  high;
    bit<64> answer;
}
header item_t {
    bit<7> value;
    bit<1> more;
    bit<8> weight;
}

struct headers_t {
    ask_t     ask;
    item_t    added;
    item_t[4] items;
}
struct metadata_t {
    bit<32> index;
    item_t  last;
}
struct pair_t {
    bit<8> low;
    bit<8> high;
}

parser P(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    value_set<pair_t>(8) pairs;

    state start {
        packet.extract(hdr.ask);
        meta.index = (bit<32>)hdr.ask.index;
        transition select(hdr.ask.low, hdr.ask.high) {
            pairs: items;
            default: accept;
        }
    }
    state items {
        packet.extract(hdr.items.next);
        meta.last = hdr.items.last;
        transition select(hdr.items.last.more) {
            1: items;
            default: accept;
        }
    }
}

control V(inout headers_t hdr, inout metadata_t meta) { apply {} }

control I(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    action_profile(4) answers;
    action answer(bit<64> value) { hdr.ask.answer = value; }
    action weigh() { hdr.ask.answer = (bit<64>)hdr.items[meta.index].weight; }
    table by_item {
        key = { hdr.items[meta.index].value: exact; }
        actions = { answer; weigh; NoAction; }
        const default_action = NoAction();
        const entries = {
            1: answer(0x1111);
            2: weigh();
        }
    }
    table constant {
        key = { hdr.ask.low: ternary; hdr.ask.high: exact; }
        actions = { answer; NoAction; }
        implementation = answers;
        const entries = {
            (0x10 &&& 0xF0, 1): answer(1);
            (_, 1): answer(2);
        }
    }
    table by_ask {
        key = { hdr.ask.index: exact; hdr.added.weight: exact; }
        actions = { answer; NoAction; }
        const default_action = NoAction();
        const entries = { (0, 0): answer(0x3333); }
    }

    apply {
        standard_metadata.egress_spec = 1;
        if (hdr.ask.kind == 1) {
            by_item.apply();
        } else if (hdr.ask.kind == 2) {
            constant.apply();
        } else if (hdr.ask.kind == 3) {
            hash(hdr.ask.answer, HashAlgorithm.identity, 64w0xFFFF_FFFF_FFFF_FFFF, { hdr.ask.low, hdr.ask.high },
                 64w0x1_0000);
        } else if (hdr.ask.kind == 4) {
            hdr.ask.answer[7:0] = meta.last.weight;
            hdr.ask.answer[15:8] = (bit<8>)meta.last.value;
        } else if (hdr.ask.kind == 5) {
            hdr.added.setValid();
        } else if (hdr.ask.kind == 6) {
            hdr.items[0].setInvalid();
        } else if (hdr.ask.kind == 7) {
            hdr.added = hdr.items[0];
        } else if (hdr.ask.kind == 8) {
            hdr.items.push_front(1);
        } else if (hdr.ask.kind == 9) {
            // A key has zeros for a header that is not there, whatever was written to its fields.
            hdr.added.weight = 9;
            by_ask.apply();
        } else if (hdr.ask.kind == 10) {
            truncate(13);
        }
    }
}

control E(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    apply {
        if (hdr.ask.kind > 4 && hdr.ask.kind != 9) {
            hdr.ask.answer = (bit<64>)standard_metadata.packet_length;
        }
    }
}

control C(inout headers_t hdr, inout metadata_t meta) { apply {} }

control D(packet_out packet, in headers_t hdr) {
    apply { packet.emit(hdr); }
}

V1Switch(P(), V(), I(), E(), C(), D()) main;
