// Checksums: verified and updated, with payload, conditional, over odd widths and varbit; several of one packet.
#include <core.p4>
#include <v1model.p4>

header base_t {
    bit<8>  flags;
    bit<8>  words;
    bit<16> sum;
    bit<16> payload_sum;
    bit<32> crc;
    bit<8>  report;
}
header body_t {
    bit<4>  x;
    bit<12> y;
    bit<24> z;
    bit<16> inner_sum;
}
header extra_t { varbit<256> data; }

struct headers_t {
    base_t  base;
    body_t  body;
    extra_t extra;
}
struct metadata_t {}

parser P(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    state start {
        packet.extract(hdr.base);
        transition select(hdr.base.flags[0:0]) {
            1: body;
            default: accept;
        }
    }
    state body {
        packet.extract(hdr.body);
        transition select(hdr.base.flags[1:1]) {
            1: extra;
            default: accept;
        }
    }
    state extra {
        packet.extract(hdr.extra, (bit<32>)hdr.base.words << 4);
        transition accept;
    }
}

control V(inout headers_t hdr, inout metadata_t meta) {
    apply {
        verify_checksum(hdr.base.isValid() && hdr.base.flags[2:2] == 1, { hdr.base.flags, hdr.base.words },
                        hdr.base.sum, HashAlgorithm.csum16);
        verify_checksum(hdr.body.isValid() && hdr.base.flags[3:3] == 1, { hdr.body.x, hdr.body.y, hdr.body.z, 8w0 },
                        hdr.body.inner_sum, HashAlgorithm.csum16);
        verify_checksum_with_payload(hdr.base.isValid() && hdr.base.flags[4:4] == 1, { hdr.base.flags, hdr.base.words },
                                     hdr.base.payload_sum, HashAlgorithm.csum16);
    }
}

control I(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    apply {
        standard_metadata.egress_spec = 4 + (bit<9>)standard_metadata.checksum_error;
        if (hdr.base.isValid()) {
            hdr.base.report = (bit<8>)standard_metadata.checksum_error;
        }
        if (hdr.body.isValid()) {
            hdr.body.z = hdr.body.z + 1;
        }
    }
}

control E(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) { apply {} }

control C(inout headers_t hdr, inout metadata_t meta) {
    apply {
        update_checksum(hdr.base.isValid(), { hdr.base.flags, hdr.base.words }, hdr.base.sum, HashAlgorithm.csum16);
        update_checksum(hdr.body.isValid() && hdr.extra.isValid(),
                        { hdr.body.x, hdr.body.y, hdr.body.z, 8w0xff, hdr.extra.data }, hdr.body.inner_sum,
                        HashAlgorithm.csum16);
        update_checksum_with_payload(hdr.base.isValid() && hdr.base.flags[5:5] == 1,
                                     { hdr.base.flags, hdr.base.words, 16w0x1234 }, hdr.base.payload_sum,
                                     HashAlgorithm.csum16);
        update_checksum(hdr.base.isValid() && hdr.base.flags[6:6] == 1, { hdr.base.flags, hdr.base.words, hdr.base.sum },
                        hdr.base.crc, HashAlgorithm.crc32);
    }
}

control D(packet_out packet, in headers_t hdr) { apply { packet.emit(hdr); } }

V1Switch(P(), V(), I(), E(), C(), D()) main;
