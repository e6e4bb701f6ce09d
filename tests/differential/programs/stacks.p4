// Header stacks in the parser and after it: loops, lookahead, varbit, unions, advance, verify, push and pop.
// Every header is only read where it is valid, and every field of a header that becomes valid is assigned.
#include <core.p4>
#include <v1model.p4>

error { BadVersion }

header start_t {
    bit<4>  version;
    bit<4>  kind;
    bit<8>  action_code;
    bit<8>  error_code;
    bit<8>  depth;
}
header tag_t {
    bit<3>  pcp;
    bit<1>  dei;
    bit<12> vid;
    bit<16> type;
}
header label_t {
    bit<20> label;
    bit<3>  tc;
    bit<1>  bottom;
    bit<8>  ttl;
}
header options_t {
    bit<8>      type;
    bit<8>      words;
    varbit<320> data;
}
header small_t { bit<8> tag; bit<8> value; }
header large_t { bit<8> tag; bit<40> value; }
header odd_t { bit<8> tag; bit<13> head; bit<51> tail; }
header_union either_t {
    small_t small;
    large_t large;
    odd_t   odd;
}
header tail_t { bit<32> sum; }

struct headers_t {
    start_t     start;
    tag_t[3]    tags;
    label_t[5]  labels;
    options_t   options;
    either_t    either;
    tail_t      tail;
}
struct metadata_t {
    bit<8> seen;
    bit<32> total;
}

parser P(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    state start {
        packet.extract(hdr.start);
        verify(hdr.start.version == 4 || hdr.start.version == 6, error.BadVersion);
        transition select(hdr.start.version, hdr.start.kind) {
            (4, 1): tags;
            (_, 2): labels;
            (4, 3): options;
            (6, 3 &&& 7): sized;
            (_, 4): either;
            (4, 8 .. 11): skip;
            (6, 8 &&& 8): look;
            default: accept;
        }
    }
    state tags {
        packet.extract(hdr.tags.next);
        meta.seen = meta.seen + 1;
        transition select(hdr.tags.last.type, hdr.tags.last.dei) {
            (0x8100, _): tags;
            (0x88a8, 1): tags;
            (0x8847, 0): labels;
            (0x0800 &&& 0xff00, _): either;
            default: accept;
        }
    }
    state labels {
        packet.extract(hdr.labels.next);
        meta.total = meta.total + (bit<32>)hdr.labels.last.label;
        transition select(hdr.labels.last.bottom) {
            0: labels;
            1: after_labels;
        }
    }
    state after_labels {
        transition select(packet.lookahead<bit<4>>()) {
            1: either;
            2: options;
            default: accept;
        }
    }
    state options {
        bit<16> ahead = packet.lookahead<bit<16>>();
        packet.extract(hdr.options, (bit<32>)ahead[7:0] << 3);
        transition select(hdr.options.type) {
            7: tail;
            default: accept;
        }
    }
    state sized {
        packet.extract(hdr.options, (bit<32>)(hdr.start.action_code - 2) << 3);
        transition tail;
    }
    state either {
        transition select(packet.lookahead<bit<8>>()) {
            0x10 &&& 0xf0: small;
            0x20 .. 0x7f: large;
            default: odd;
        }
    }
    state small {
        packet.extract(hdr.either.small);
        transition tail;
    }
    state large {
        packet.extract(hdr.either.large);
        transition accept;
    }
    state odd {
        packet.extract(hdr.either.odd);
        transition accept;
    }
    state skip {
        packet.advance((bit<32>)(hdr.start.action_code & 7) << 3);
        transition tail;
    }
    state look {
        meta.total = packet.lookahead<bit<24>>() ++ 8w0;
        transition tail;
    }
    state tail {
        packet.extract(hdr.tail);
        transition accept;
    }
}

control V(inout headers_t hdr, inout metadata_t meta) { apply {} }

control I(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    action new_label(bit<20> label) {
        hdr.labels.push_front(1);
        hdr.labels[0].setValid();
        hdr.labels[0] = { label, 3, 0, 64 };
    }
    apply {
        standard_metadata.egress_spec = standard_metadata.ingress_port ^ 1;
        if (!hdr.start.isValid()) {
            return;
        }
        if (standard_metadata.parser_error == error.PacketTooShort) {
            hdr.start.error_code = 1;
        } else if (standard_metadata.parser_error == error.StackOutOfBounds) {
            hdr.start.error_code = 2;
        } else if (standard_metadata.parser_error == error.HeaderTooShort) {
            hdr.start.error_code = 3;
        } else if (standard_metadata.parser_error == error.BadVersion) {
            hdr.start.error_code = 4;
        } else if (standard_metadata.parser_error == error.NoMatch) {
            hdr.start.error_code = 5;
        } else if (standard_metadata.parser_error != error.NoError) {
            hdr.start.error_code = 0xee;
        }
        hdr.start.depth = meta.seen;
        bit<8> code = hdr.start.action_code;
        if (hdr.labels[0].isValid()) {
            if (code[2:0] == 1) {
                hdr.labels.pop_front(1);
            } else if (code[2:0] == 2) {
                hdr.labels.pop_front(2);
            } else if (code[2:0] == 3) {
                new_label(0xabcde);
            } else if (code[2:0] == 4) {
                new_label(0x11111);
                new_label(0x22222);
            } else if (code[2:0] == 5) {
                hdr.labels.pop_front(7);
            } else if (code[2:0] == 6 && hdr.labels[1].isValid()) {
                label_t saved = hdr.labels[0];
                hdr.labels[0] = hdr.labels[1];
                hdr.labels[1] = saved;
            } else if (hdr.labels[3].isValid()) {
                bit<2> at = code[7:6];
                hdr.labels[at].ttl = hdr.labels[3 - at].ttl |-| 1;
            } else {
                hdr.labels[0].ttl = hdr.labels[0].ttl |-| 1;
            }
        }
        if (hdr.tags[0].isValid()) {
            if (code[4:3] == 1) {
                hdr.tags[2] = hdr.tags[0];
                hdr.tags[2].vid = 0xfff;
            } else if (code[4:3] == 2) {
                hdr.tags[1].setInvalid();
            } else if (code[4:3] == 3) {
                hdr.tags.push_front(2);
                hdr.tags[1].setValid();
                hdr.tags[1] = { 7, 1, 1, 0x8100 };
            }
        }
        if (hdr.either.small.isValid()) {
            if (hdr.either.small.value > 100) {
                bit<8> kept = hdr.either.small.value;
                hdr.either.large.setValid();
                hdr.either.large = { 0x33, (bit<40>)kept };
            }
        } else if (hdr.either.odd.isValid()) {
            hdr.either.odd.head = hdr.either.odd.head + 1;
            hdr.either.odd.tail = ~hdr.either.odd.tail;
        } else if (hdr.either.large.isValid() && code[7:7] == 1) {
            hdr.either.large.setInvalid();
        }
        if (hdr.options.isValid() && code[5:5] == 1) {
            hdr.options.setInvalid();
        }
        if (hdr.tail.isValid()) {
            hdr.tail.sum = hdr.tail.sum + meta.total;
        }
    }
}

control E(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) { apply {} }
control C(inout headers_t hdr, inout metadata_t meta) { apply {} }

control D(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.start);
        packet.emit(hdr.tags);
        packet.emit(hdr.labels);
        packet.emit(hdr.options);
        packet.emit(hdr.either);
        packet.emit(hdr.tail);
    }
}

V1Switch(P(), V(), I(), E(), C(), D()) main;
