// Let packets with a higher class go first: the upper three bits of DSCP are the queue.

#include <core.p4>
#include <v1model.p4>
#include "network.p4"

control Enter(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    apply {
        Forward.apply(hdr, std);
        if (hdr.ipv4.isValid()) {
            std.priority = hdr.ipv4.dscp[5:3];
        }
    }
}

control Leave(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    apply { }
}

V1Switch(Read(), Verify(), Enter(), Leave(), Sum(), Write()) main;
