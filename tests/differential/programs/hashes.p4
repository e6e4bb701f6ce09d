// Every hash algorithm that v1model.p4 names and BMv2 has, over odd widths and headers, with base and maximum; and an
// action selector per algorithm. Reduced by a maximum that is not a power of two as well.
#include <core.p4>
#include <v1model.p4>

header key_t {
    bit<4>   a;
    bit<13>  b;
    bit<47>  c;
    bit<64>  d;
    bit<128> e;
    bit<16>  base;
    bit<16>  most;
    int<24>  f;
}
header made_t {
    bit<32> crc32;
    bit<16> crc16;
    bit<16> csum16;
    bit<16> xor16;
    bit<64> identity;
    bit<32> crc32_reduced;
    bit<16> crc16_reduced;
    bit<16> crc16_moved;
    bit<32> crc32_custom;
    bit<16> crc16_custom;
    bit<16> csum16_wide;
    bit<16> xor16_odd;
    bit<32> identity_reduced;
    bit<8>  member;
}

struct headers_t {
    key_t  key;
    made_t made;
}
struct metadata_t {}

parser P(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    state start {
        packet.extract(hdr.key);
        transition accept;
    }
}

control V(inout headers_t hdr, inout metadata_t meta) { apply {} }

control I(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    action_selector(HashAlgorithm.crc16, 32w32, 32w16) by_crc16;
    action_selector(HashAlgorithm.crc32, 32w32, 32w16) by_crc32;

    action member(bit<8> number, bit<9> port) {
        hdr.made.member = number;
        standard_metadata.egress_spec = port;
    }
    table first {
        key = { hdr.key.a: exact; hdr.key.b: selector; hdr.key.c: selector; }
        actions = { member; NoAction; }
        implementation = by_crc16;
        size = 16;
    }
    table second {
        key = { hdr.key.a: ternary; hdr.key.d: selector; hdr.key.f: selector; }
        actions = { member; NoAction; }
        implementation = by_crc32;
        size = 16;
    }

    apply {
        standard_metadata.egress_spec = 1;
        if (!hdr.key.isValid()) {
            mark_to_drop(standard_metadata);
            return;
        }
        hdr.made.setValid();
        hash(hdr.made.crc32, HashAlgorithm.crc32, 32w0, { hdr.key.a, hdr.key.b, hdr.key.c }, 33w0x100000000);
        hash(hdr.made.crc16, HashAlgorithm.crc16, 16w0, { hdr.key.b, hdr.key.a }, 17w0x10000);
        hash(hdr.made.csum16, HashAlgorithm.csum16, 16w0, { hdr.key.d, hdr.key.e }, 17w0x10000);
        hash(hdr.made.xor16, HashAlgorithm.xor16, 16w0, { hdr.key.d, hdr.key.e }, 17w0x10000);
        hash(hdr.made.identity, HashAlgorithm.identity, 64w0, { hdr.key.c, hdr.key.b, hdr.key.a },
             64w0xffffffffffffffff);
        hash(hdr.made.crc32_reduced, HashAlgorithm.crc32, 32w7, { hdr.key.e, hdr.key.f }, 32w1000);
        hash(hdr.made.crc16_reduced, HashAlgorithm.crc16, 16w100, { hdr.key.e }, 16w37);
        bit<16> most = hdr.key.most | 1;
        hash(hdr.made.crc16_moved, HashAlgorithm.crc16, hdr.key.base, { hdr.key.d, 3w5, hdr.key.b }, most);
        hash(hdr.made.crc32_custom, HashAlgorithm.crc32_custom, 32w0, { hdr.key.c, hdr.key.f }, 33w0x100000000);
        hash(hdr.made.crc16_custom, HashAlgorithm.crc16_custom, 16w0, { hdr.key.c, hdr.key.f }, 17w0x10000);
        hash(hdr.made.csum16_wide, HashAlgorithm.csum16, 16w0, { hdr.key.a, hdr.key.b, hdr.key.c, hdr.key.f },
             17w0x10000);
        hash(hdr.made.xor16_odd, HashAlgorithm.xor16, 16w0, { hdr.key.f }, 17w0x10000);
        hash(hdr.made.identity_reduced, HashAlgorithm.identity, 32w3, { hdr.key.f, hdr.key.d }, 32w1000003);
        hdr.made.member = 0xff;
        first.apply();
        second.apply();
    }
}

control E(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) { apply {} }
control C(inout headers_t hdr, inout metadata_t meta) { apply {} }
control D(packet_out packet, in headers_t hdr) { apply { packet.emit(hdr.key); packet.emit(hdr.made); } }

V1Switch(P(), V(), I(), E(), C(), D()) main;
