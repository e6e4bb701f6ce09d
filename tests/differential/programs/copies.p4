// Copies: clones of both kinds with and without preserved fields, the last of two clones, resubmission, recirculation,
// multicast (also of clones), truncation, drops at either end; all in combination, as the bits of a packet ask.
#include <core.p4>
#include <v1model.p4>

header ask_t {
    bit<1>  clone_in;
    bit<1>  clone_out;
    bit<1>  again;
    bit<1>  around;
    bit<1>  multicast;
    bit<1>  cut;
    bit<1>  drop_in;
    bit<1>  drop_out;
    bit<8>  session;
    bit<16> group;
    bit<8>  list;
    bit<16> goes_to;
}
header seen_t {
    bit<8>  instance;
    bit<16> rid;
    bit<16> egress_port;
    bit<16> ingress_port;
    bit<8>  one;
    bit<8>  two;
    bit<8>  three;
    bit<8>  four;
    bit<8>  passes;
    bit<32> length;
}
header more_t { bit<64> filler; }

struct headers_t {
    ask_t  ask;
    seen_t seen;
    more_t more;
}
struct metadata_t {
    @field_list(1, 2) bit<8> one;
    @field_list(2) bit<8> two;
    @field_list(3) bit<8> three;
    bit<8> four;
    @field_list(1, 2, 3) bit<8> passes;
    bit<8> rounds;
}

parser P(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    state start {
        packet.extract(hdr.ask);
        packet.extract(hdr.seen);
        transition select(hdr.ask.list) {
            0 .. 3: accept;
            default: more;
        }
    }
    state more {
        packet.extract(hdr.more);
        transition accept;
    }
}

control V(inout headers_t hdr, inout metadata_t meta) { apply {} }

control I(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    counter(16, CounterType.packets_and_bytes) by_instance;
    apply {
        if (standard_metadata.parser_error != error.NoError) {
            mark_to_drop(standard_metadata);
            return;
        }
        by_instance.count(standard_metadata.instance_type & 15);
        bit<8> before = meta.passes;
        meta.one = hdr.ask.session;
        meta.two = meta.two + 2;
        meta.three = 0x33;
        meta.four = 0x44;
        meta.passes = before + 1;
        standard_metadata.egress_spec = hdr.ask.goes_to[8:0];
        standard_metadata.priority = hdr.ask.goes_to[15:13];
        if (hdr.ask.clone_in == 1) {
            if (hdr.ask.list[7:7] == 1) {
                clone(CloneType.I2E, (bit<32>)(hdr.ask.session & 7));
            }
            if (hdr.ask.list[1:0] == 1) {
                clone_preserving_field_list(CloneType.I2E, (bit<32>)(hdr.ask.session & 7), 1);
            } else if (hdr.ask.list[1:0] == 2) {
                clone_preserving_field_list(CloneType.I2E, (bit<32>)(hdr.ask.session & 7), 2);
            } else if (hdr.ask.list[1:0] == 3) {
                clone_preserving_field_list(CloneType.I2E, (bit<32>)(hdr.ask.session & 7), 3);
            }
        }
        if (hdr.ask.again == 1 && before < 2) {
            hdr.seen.one = 0xaa;
            resubmit_preserving_field_list(1);
        }
        if (hdr.ask.multicast == 1) {
            standard_metadata.mcast_grp = hdr.ask.group;
        }
        if (hdr.ask.cut == 1) {
            truncate((bit<32>)hdr.ask.session[5:0] + 16);
        }
        if (hdr.ask.drop_in == 1) {
            mark_to_drop(standard_metadata);
        }
        if (hdr.ask.list == 3) {
            hdr.more.setValid();
            hdr.more.filler = 0x0102030405060708;
        }
    }
}

control E(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    counter(16, CounterType.packets_and_bytes) by_instance;
    apply {
        if (!hdr.seen.isValid()) {
            return;
        }
        by_instance.count(standard_metadata.instance_type & 15);
        hdr.seen.instance = (bit<8>)standard_metadata.instance_type;
        hdr.seen.rid = standard_metadata.egress_rid;
        hdr.seen.egress_port = (bit<16>)standard_metadata.egress_port;
        hdr.seen.ingress_port = (bit<16>)standard_metadata.ingress_port;
        hdr.seen.one = meta.one;
        hdr.seen.two = meta.two;
        hdr.seen.three = meta.three;
        hdr.seen.four = meta.four;
        hdr.seen.length = standard_metadata.packet_length;
        if (hdr.ask.clone_out == 1 && standard_metadata.instance_type != 2
            && (hdr.ask.around == 0 || hdr.seen.passes[1:0] != 2)) {
            clone_preserving_field_list(CloneType.E2E, (bit<32>)(hdr.ask.session & 7), 2);
        }
        if (hdr.ask.around == 1 && hdr.seen.passes[1:0] == 2 && standard_metadata.instance_type != 1) {
            hdr.seen.passes = hdr.seen.passes + 1;
            recirculate_preserving_field_list(3);
        }
        if (hdr.ask.drop_out == 1) {
            mark_to_drop(standard_metadata);
        }
    }
}

control C(inout headers_t hdr, inout metadata_t meta) { apply {} }
control D(packet_out packet, in headers_t hdr) {
    apply { packet.emit(hdr.ask); packet.emit(hdr.seen); packet.emit(hdr.more); }
}

V1Switch(P(), V(), I(), E(), C(), D()) main;
