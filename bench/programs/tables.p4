// One large table of each kind, for measuring how fast entries are written and read (p4runtime_load.py).
// tables.json and tables.p4info.txtpb are what p4c makes of it:
//   p4c-bm2-ss --std p4-16 --arch v1model -o tables.json --p4runtime-files tables.p4info.txtpb tables.p4
#include <core.p4>
#include <v1model.p4>

header ethernet_t {
    bit<48> dst;
    bit<48> src;
    bit<16> type;
}

header ipv4_t {
    bit<64> other;
    bit<8> ttl;
    bit<8> protocol;
    bit<16> checksum;
    bit<32> src;
    bit<32> dst;
}

struct headers_t {
    ethernet_t ethernet;
    ipv4_t ipv4;
}

struct metadata_t { }

parser ParserImpl(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    state start {
        packet.extract(hdr.ethernet);
        packet.extract(hdr.ipv4);
        transition accept;
    }
}

control VerifyChecksumImpl(inout headers_t hdr, inout metadata_t meta) {
    apply { }
}

control IngressImpl(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    action_selector(HashAlgorithm.crc16, 32w1200000, 32w16) next_hops;

    action forward(bit<9> port, bit<48> dst) {
        standard.egress_spec = port;
        hdr.ethernet.dst = dst;
    }
    action drop() {
        mark_to_drop(standard);
    }

    @name("exact") table exact_table {
        key = { hdr.ethernet.dst: exact; standard.ingress_port: exact; }
        actions = { forward; drop; }
        size = 300000;
    }
    @name("lpm") table lpm_table {
        key = { hdr.ipv4.dst: lpm; }
        actions = { forward; drop; }
        size = 1200000;
    }
    @name("ternary") table ternary_table {
        key = { hdr.ipv4.src: ternary; hdr.ipv4.dst: ternary; hdr.ipv4.protocol: ternary; }
        actions = { forward; drop; }
        size = 300000;
    }
    @name("one_shot") table one_shot_table {
        key = { hdr.ipv4.dst: exact; hdr.ipv4.src: selector; }
        actions = { forward; drop; }
        implementation = next_hops;
        size = 300000;
    }

    apply {
        exact_table.apply();
        lpm_table.apply();
        ternary_table.apply();
        one_shot_table.apply();
    }
}

control EgressImpl(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    apply { }
}

control ComputeChecksumImpl(inout headers_t hdr, inout metadata_t meta) {
    apply { }
}

control DeparserImpl(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr);
    }
}

V1Switch(ParserImpl(), VerifyChecksumImpl(), IngressImpl(), EgressImpl(), ComputeChecksumImpl(), DeparserImpl()) main;
