// SPDX-License-Identifier: Apache-2.0
// The IPv4 header checksum, where the header has no options (with options: control Forwarding, RFC 1141).

#define IPV4_FIELDS { hdr.ipv4.version, hdr.ipv4.ihl, hdr.ipv4.dscp, hdr.ipv4.ecn, hdr.ipv4.total_len, \
    hdr.ipv4.identification, hdr.ipv4.flags, hdr.ipv4.frag_offset, hdr.ipv4.ttl, hdr.ipv4.protocol, \
    hdr.ipv4.src, hdr.ipv4.dst }

control EchelonVerifyChecksum(inout headers_t hdr, inout metadata_t meta) {
    apply {
        verify_checksum(hdr.ipv4.isValid() && hdr.ipv4.ihl == 5, IPV4_FIELDS, hdr.ipv4.checksum,
                        HashAlgorithm.csum16);
    }
}

control EchelonComputeChecksum(inout headers_t hdr, inout metadata_t meta) {
    apply {
        update_checksum(hdr.ipv4.isValid() && hdr.ipv4.ihl == 5, IPV4_FIELDS, hdr.ipv4.checksum,
                        HashAlgorithm.csum16);
    }
}
