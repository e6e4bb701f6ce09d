// Mark packets that have waited in a long queue, if their senders can be told so (RFC 3168).

#include <core.p4>
#include <v1model.p4>
#include "network.p4"

const bit<19> THRESHOLD = 10;  // packets in the queue

control Enter(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    apply {
        Forward.apply(hdr, std);
    }
}

control Leave(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    apply {
        bool capable = hdr.ipv4.ecn == 1 || hdr.ipv4.ecn == 2;
        if (hdr.ipv4.isValid() && capable && std.enq_qdepth >= THRESHOLD) {
            hdr.ipv4.ecn = 3;
        }
    }
}

V1Switch(Read(), Verify(), Enter(), Leave(), Sum(), Write()) main;
