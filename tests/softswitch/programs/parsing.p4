// SPDX-License-Identifier: Apache-2.0
// Stacks, look-ahead, variable length, a union, a value set, verify; the answer tells what the parser saw.

#include <core.p4>
#include <v1model.p4>

error { BadMagic }

header start_t {
    bit<8> kind;
    bit<8> report;
    bit<8> detail;
}
header label_t {
    bit<20> label;
    bit<3>  tc;
    bit<1>  bottom;
    bit<8>  ttl;
}
header options_t {
    bit<4>      version;
    bit<4>      words;
    varbit<128> data;
    bit<8>      after;
}
header short_t { bit<8> tag; bit<8> value; }
header long_t { bit<8> tag; bit<24> value; }
header_union either_t {
    short_t small;
    long_t  large;
}
header magic_t { bit<16> magic; }

struct headers_t {
    start_t    start;
    label_t[4] labels;
    options_t  options;
    either_t   either;
    magic_t    magic;
}
struct metadata_t {}

parser P(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    value_set<bit<8>>(8) magic_kinds;

    state start {
        packet.extract(hdr.start);
        transition select(hdr.start.kind) {
            1: labels;
            2: options;
            3: either;
            magic_kinds: magic;
            5: skip;
            default: accept;
        }
    }
    state labels {
        packet.extract(hdr.labels.next);
        transition select(hdr.labels.last.bottom) {
            0: labels;
            default: accept;
        }
    }
    state options {
        bit<8> ahead = packet.lookahead<bit<8>>();
        packet.extract(hdr.options, (bit<32>)ahead[3:0] << 5);
        transition accept;
    }
    state either {
        transition select(packet.lookahead<bit<8>>()) {
            0x10 &&& 0xf0: either_small;
            _: either_large;
        }
    }
    state either_small {
        packet.extract(hdr.either.small);
        transition accept;
    }
    state either_large {
        packet.extract(hdr.either.large);
        transition accept;
    }
    state magic {
        packet.extract(hdr.magic);
        verify(hdr.magic.magic == 0xcafe, error.BadMagic);
        transition accept;
    }
    state skip {
        packet.advance(16);
        packet.extract(hdr.magic);
        transition accept;
    }
}

control V(inout headers_t hdr, inout metadata_t meta) { apply {} }

control I(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    apply {
        standard_metadata.egress_spec = 1;
        if (standard_metadata.parser_error == error.PacketTooShort) {
            hdr.start.report = 1;
        } else if (standard_metadata.parser_error == error.StackOutOfBounds) {
            hdr.start.report = 3;
        } else if (standard_metadata.parser_error == error.HeaderTooShort) {
            hdr.start.report = 4;
        } else if (standard_metadata.parser_error == error.BadMagic) {
            hdr.start.report = 9;
        } else if (standard_metadata.parser_error == error.NoError) {
            hdr.start.report = 0;
        } else {
            hdr.start.report = 0xff;
        }
        if (hdr.start.kind == 1) {
            if (hdr.start.detail == 1) {
                hdr.labels.pop_front(1);
            } else if (hdr.start.detail == 2) {
                hdr.labels.push_front(1);
                hdr.labels[0].setValid();
                hdr.labels[0].label = 0x12345;
                hdr.labels[0].ttl = 64;
            } else if (hdr.start.detail >= 16 && hdr.start.detail < 20) {
                bit<2> index = hdr.start.detail[1:0];
                hdr.labels[index].ttl = hdr.labels[index].ttl - 1;
            } else if (hdr.start.detail >= 32 && hdr.start.detail < 36) {
                bit<2> index = hdr.start.detail[1:0];
                if (hdr.labels[index].isValid()) {
                    hdr.start.report = 0x80;
                }
            } else if (hdr.start.detail == 3) {
                hdr.labels[1] = hdr.labels[0];
            }
        }
        if (hdr.either.small.isValid()) {
            hdr.start.detail = hdr.either.small.value;
            hdr.either.large.setValid();
            hdr.either.large.tag = 0x77;
            hdr.either.large.value = 0x010203;
        }
        if (hdr.options.isValid()) {
            hdr.options.after = hdr.options.after + 1;
        }
    }
}

control E(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) { apply {} }
control C(inout headers_t hdr, inout metadata_t meta) { apply {} }

control D(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.start);
        packet.emit(hdr.labels);
        packet.emit(hdr.options);
        packet.emit(hdr.either);
        packet.emit(hdr.magic);
    }
}

V1Switch(P(), V(), I(), E(), C(), D()) main;
