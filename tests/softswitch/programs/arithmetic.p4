// SPDX-License-Identifier: Apache-2.0
// One packet holds operands, and the answer holds what every operator makes of them.

#include <core.p4>
#include <v1model.p4>

header operands_t {
    bit<48> a;
    bit<48> b;
    int<32> s;
    int<32> t;
    bit<8>  n;
    bit<8>  m;
}

header results_t {
    bit<48> add;
    bit<48> sub;
    bit<48> mul;
    bit<48> shl;
    bit<48> shr;
    bit<48> xor;
    bit<48> inv;
    int<32> slack;
    int<32> sadd;
    int<32> ssub;
    int<32> smul;
    int<32> sshr;
    int<32> sneg;
    int<32> sat_add;
    int<32> sat_sub;
    bit<8>  usat_add;
    bit<8>  usat_sub;
    bit<8>  less;
    bit<8>  sless;
    bit<16> concat;
    bit<8>  slice;
    int<8>  narrow;
    bit<48> widen;
    bit<8>  choice;
}

struct headers_t {
    operands_t given;
    results_t  made;
}

struct metadata_t {
    int<32> copy;
}

parser P(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    state start {
        packet.extract(hdr.given);
        transition accept;
    }
}

control V(inout headers_t hdr, inout metadata_t meta) { apply {} }

control I(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    apply {
        hdr.made.setValid();
        hdr.made.add = hdr.given.a + hdr.given.b;
        hdr.made.sub = hdr.given.a - hdr.given.b;
        hdr.made.mul = hdr.given.a * hdr.given.b;
        hdr.made.shl = hdr.given.a << hdr.given.n;
        hdr.made.shr = hdr.given.a >> hdr.given.n;
        hdr.made.xor = (hdr.given.a ^ hdr.given.b) | (hdr.given.a & hdr.given.b);
        hdr.made.inv = ~hdr.given.a;
        bit<48> difference = hdr.given.a - hdr.given.b;
        hdr.made.slack = (int<32>)difference[31:0];
        hdr.made.sadd = hdr.given.s + hdr.given.t;
        hdr.made.ssub = hdr.given.s - hdr.given.t;
        hdr.made.smul = hdr.given.s * hdr.given.t;
        hdr.made.sshr = hdr.given.s >> hdr.given.n;
        hdr.made.sneg = -hdr.given.s;
        hdr.made.sat_add = hdr.given.s |+| hdr.given.t;
        hdr.made.sat_sub = hdr.given.s |-| hdr.given.t;
        hdr.made.usat_add = hdr.given.n |+| hdr.given.m;
        hdr.made.usat_sub = hdr.given.n |-| hdr.given.m;
        hdr.made.less = (bit<8>)(bit<1>)(hdr.given.a < hdr.given.b);
        hdr.made.sless = (bit<8>)(bit<1>)(hdr.given.s < hdr.given.t);
        hdr.made.concat = hdr.given.n ++ hdr.given.m;
        hdr.made.slice = hdr.given.a[27:20];
        hdr.made.narrow = (int<8>)hdr.given.s;
        meta.copy = hdr.given.s;
        hdr.made.widen = (bit<48>)(bit<64>)(int<64>)meta.copy;
        hdr.made.choice = hdr.given.s < 0 && hdr.given.n > hdr.given.m ? hdr.given.n : hdr.given.m;
        standard_metadata.egress_spec = 1;
    }
}

control E(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) { apply {} }
control C(inout headers_t hdr, inout metadata_t meta) { apply {} }

control D(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.given);
        packet.emit(hdr.made);
    }
}

V1Switch(P(), V(), I(), E(), C(), D()) main;
