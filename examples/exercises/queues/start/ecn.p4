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
        // Yours: a packet whose sender can be told (ECN 1 or 2) gets ECN 3 if at least THRESHOLD packets were in the
        // queue when it came. std.enq_qdepth is how many there were.
    }
}

V1Switch(Read(), Verify(), Enter(), Leave(), Sum(), Write()) main;
