// Arithmetic beyond machine words: 128 and 200 bits, odd widths, signed, saturating, shifts, slices, concatenation.
#include <core.p4>
#include <v1model.p4>

header given_t {
    bit<128> a;
    bit<128> b;
    bit<200> c;
    int<64>  s;
    int<64>  t;
    int<7>   u;
    bit<9>   v;
    bit<3>   w;
    bit<5>   n;
}
header made_t {
    bit<128> sum;
    bit<128> difference;
    bit<128> product;
    bit<200> shifted;
    bit<200> narrowed;
    bit<200> mixed;
    bit<128> saturated;
    bit<128> saturated_down;
    int<64>  s_sum;
    int<64>  s_product;
    int<64>  s_saturated;
    int<64>  s_saturated_down;
    int<64>  s_shifted;
    int<64>  s_negated;
    int<7>   u_saturated;
    bit<9>   v_saturated;
    int<13>  extended;
    bit<11>  compared;
    bit<72>  glued;
    bit<64>  slice;
    bit<8>   rest;
    bit<128> chosen;
    bit<128> masked;
}

struct headers_t {
    given_t given;
    made_t  made;
}
struct metadata_t {}

parser P(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    state start {
        packet.extract(hdr.given);
        transition accept;
    }
}

control V(inout headers_t hdr, inout metadata_t meta) { apply {} }

control I(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    apply {
        standard_metadata.egress_spec = 3;
        if (!hdr.given.isValid()) {
            mark_to_drop(standard_metadata);
            return;
        }
        given_t g = hdr.given;
        hdr.made.setValid();
        hdr.made.sum = g.a + g.b;
        hdr.made.difference = g.a - g.b;
        hdr.made.product = g.a * g.b;
        hdr.made.shifted = g.c << (g.n ++ g.w);
        hdr.made.narrowed = g.c >> (g.w ++ g.n);
        hdr.made.mixed = (g.c ^ ((bit<200>)g.a << 72)) | ~((bit<200>)g.b & g.c);
        hdr.made.saturated = g.a |+| g.b;
        hdr.made.saturated_down = g.a |-| g.b;
        hdr.made.s_sum = g.s + g.t;
        hdr.made.s_product = g.s * g.t;
        hdr.made.s_saturated = g.s |+| g.t;
        hdr.made.s_saturated_down = g.s |-| g.t;
        hdr.made.s_shifted = g.s >> g.n;
        hdr.made.s_negated = -g.s + (g.t << 3);
        hdr.made.u_saturated = g.u |+| (int<7>)g.t[6:0];
        hdr.made.v_saturated = g.v |-| g.a[8:0];
        hdr.made.extended = (int<13>)g.u * 3;
        hdr.made.compared = (bit<1>)(g.a < g.b) ++ (bit<1>)(g.s < g.t) ++ (bit<1>)(g.s >= 0) ++ (bit<1>)(g.u > -3)
            ++ (bit<1>)(g.c == (bit<200>)g.a) ++ (bit<1>)(g.a[31:0] <= g.b[31:0]) ++ (bit<1>)(g.t != g.s)
            ++ (bit<1>)(g.v > 255 && g.w < 4) ++ (bit<1>)(g.n == 0 || g.w == 7) ++ g.v[8:8] ++ g.n[4:4];
        hdr.made.glued = g.a[100:61] ++ g.c[199:180] ++ g.v ++ g.w;
        hdr.made.slice = g.c[130:67];
        hdr.made.rest = (bit<8>)(g.u[6:0] ++ g.w[0:0]) ^ (bit<8>)g.v[7:0];
        hdr.made.chosen = g.a > g.b ? g.a : g.b;
        g.b[90:40] = g.a[50:0];
        g.b[3:3] = 1;
        hdr.made.masked = g.b;
    }
}

control E(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) { apply {} }
control C(inout headers_t hdr, inout metadata_t meta) { apply {} }
control D(packet_out packet, in headers_t hdr) { apply { packet.emit(hdr.given); packet.emit(hdr.made); } }

V1Switch(P(), V(), I(), E(), C(), D()) main;
