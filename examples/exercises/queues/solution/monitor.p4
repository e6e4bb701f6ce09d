// Let probes collect how much each port on their way has sent.

#include <core.p4>
#include <v1model.p4>
#include "network.p4"

control Enter(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    apply {
        Forward.apply(hdr, std);
    }
}

control Leave(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    register<bit<32>>(512) passed;    // bytes that left by each port since its last probe
    register<bit<48>>(512) probed;    // when that was
    apply {
        bit<32> bytes;
        bit<32> port = (bit<32>) std.egress_port;
        passed.read(bytes, port);
        bytes = bytes + std.packet_length;
        if (hdr.probe.isValid()) {
            bit<48> before;
            probed.read(before, port);
            hdr.records.push_front(1);
            hdr.records[0].setValid();
            hdr.records[0].port = (bit<8>) std.egress_port;
            hdr.records[0].bytes = bytes;
            hdr.records[0].lasted = std.egress_global_timestamp - before;
            hdr.probe.records = hdr.probe.records + 1;
            hdr.ipv4.length = hdr.ipv4.length + RECORD_BYTES;
            hdr.udp.length = hdr.udp.length + RECORD_BYTES;
            hdr.udp.checksum = 0;
            probed.write(port, std.egress_global_timestamp);
            bytes = 0;
        }
        passed.write(port, bytes);
    }
}

V1Switch(Read(), Verify(), Enter(), Leave(), Sum(), Write()) main;
