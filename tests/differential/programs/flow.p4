// Control flow: switch on values and on actions, exit in actions and controls, return, nested conditions, calls with
// parameters of every direction, tables applied in turn, constant entries, default actions that change, loops.
#include <core.p4>
#include <v1model.p4>

header h_t {
    bit<8>  a;
    bit<8>  b;
    bit<16> c;
    bit<32> d;
    bit<8>  trace;
    bit<32> path;
}

struct headers_t { h_t h; }
struct metadata_t {
    bit<8>  m;
    bit<16> n;
    bool    flag;
}

enum bit<8> Kind { ZERO = 0, ONE = 1, TWO = 2, MANY = 200 }

parser P(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    state start {
        packet.extract(hdr.h);
        transition accept;
    }
}

control V(inout headers_t hdr, inout metadata_t meta) { apply {} }

control Inner(inout h_t h, in bit<8> x, out bit<8> y) {
    action set(bit<8> v) { h.trace = h.trace ^ v; }
    action leave() { h.trace = 0xee; exit; }
    table inner {
        key = { h.b: ternary; x: exact; }
        actions = { set; leave; NoAction; }
        const entries = {
            (0x10 &&& 0xf0, 1): set(0x0f);
            (0x17, 1): set(0xff);
            (_, 2): leave();
            (0x80 &&& 0x80, 3): set(3);
            (0x00 &&& 0x80, 3): set(4);
        }
    }
    apply {
        y = 0;
        if (inner.apply().miss) {
            y = 1;
            return;
        }
        y = 2;
    }
}

control I(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    Inner() nested;

    action step(bit<4> nibble) { hdr.h.path = (hdr.h.path << 4) | (bit<32>)nibble; }
    action go(bit<9> port, bit<4> nibble) { standard_metadata.egress_spec = port; step(nibble); }
    action stop(bit<4> nibble) { step(nibble); exit; }
    action drop() { mark_to_drop(standard_metadata); }
    action swap(inout bit<8> x, inout bit<8> y) { bit<8> t = x; x = y; y = t; }
    action count_bits() {
        bit<16> v = hdr.h.c;
        meta.n = 0;
        for (bit<8> i = 0; i < 16; i = i + 1) {
            if (v[0:0] == 1) {
                meta.n = meta.n + 1;
            }
            v = v >> 1;
            if (v == 0) {
                break;
            }
        }
    }

    table first {
        key = { hdr.h.a: exact; }
        actions = { go; step; stop; drop; }
        default_action = step(1);
        size = 64;
    }
    table second {
        key = { hdr.h.a: lpm; meta.flag: exact; }
        actions = { go; step; stop; drop; }
        default_action = step(2);
        size = 64;
    }
    table third {
        key = { hdr.h.c: range; hdr.h.b: ternary; meta.n: ternary; }
        actions = { go; step; stop; @defaultonly NoAction; }
        const default_action = NoAction();
        size = 64;
    }
    table fourth {
        key = {
            (bit<16>)hdr.h.a + hdr.h.c: ternary @name("sum");
            hdr.h.isValid(): exact;
        }
        actions = { go; step; }
        default_action = step(4);
        size = 64;
    }
    table fifth {
        key = { hdr.h.d & 0xff00: exact @name("masked"); }
        actions = { step; drop; NoAction; }
        const entries = {
            0x0100: step(5);
            0x0200: step(6);
            0x0000: step(7);
            0xff00: drop();
        }
    }

    apply {
        standard_metadata.egress_spec = 7;
        if (!hdr.h.isValid()) {
            drop();
            exit;
        }
        hdr.h.path = 0;
        hdr.h.trace = 0;
        meta.flag = hdr.h.b > 0x7f;
        switch (hdr.h.a) {
            0: { step(8); }
            1:
            2: { step(9); swap(hdr.h.a, hdr.h.b); }
            (bit<8>)Kind.MANY: { drop(); return; }
            default: { count_bits(); }
        }
        switch (first.apply().action_run) {
            go: { meta.m = 1; }
            step: {
                if (second.apply().hit) {
                    meta.m = 2;
                } else {
                    step(0xa);
                    meta.m = 3;
                }
            }
            drop: { meta.m = 4; }
            default: { meta.m = 5; }
        }
        bit<8> left;
        nested.apply(hdr.h, meta.m, left);
        if (left == 1) {
            third.apply();
        } else if (left == 2 && hdr.h.trace != 0) {
            step(0xb);
        }
        if (meta.n > 4 || (hdr.h.c & 0xf000) == 0x1000) {
            fourth.apply();
            fifth.apply();
        }
        hdr.h.d = meta.n == 0 ? hdr.h.d : hdr.h.d + 1;
    }
}

control E(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    action note() { hdr.h.trace = hdr.h.trace + 1; }
    action leave() { exit; }
    table last {
        key = { standard_metadata.egress_port: exact; meta.m: ternary; }
        actions = { note; leave; @tableonly NoAction; }
        default_action = note();
        size = 16;
    }
    apply {
        if (hdr.h.isValid()) {
            last.apply();
            hdr.h.b = 0xbb;
        }
    }
}

control C(inout headers_t hdr, inout metadata_t meta) { apply {} }
control D(packet_out packet, in headers_t hdr) { apply { packet.emit(hdr.h); } }

V1Switch(P(), V(), I(), E(), C(), D()) main;
