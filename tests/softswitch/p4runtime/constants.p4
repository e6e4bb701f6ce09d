// Tables whose entries are in the program, for the tests of the switch's P4Runtime server. What p4c makes of it:
//   p4c-bm2-ss --std p4-16 --arch v1model -o constants.json --p4runtime-files constants.p4info.txtpb \
//       --p4runtime-entries-files constants.entries.txtpb constants.p4
#include <core.p4>
#include <v1model.p4>

header key_t {
    bit<8> a;
    bit<16> b;
    bit<32> c;
}

struct headers_t {
    key_t key;
}

struct metadata_t { }

parser ParserImpl(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    state start {
        packet.extract(hdr.key);
        transition accept;
    }
}

control VerifyChecksumImpl(inout headers_t hdr, inout metadata_t meta) {
    apply { }
}

control IngressImpl(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    direct_counter(CounterType.packets) counted;

    action forward(bit<9> port) {
        standard.egress_spec = port;
    }
    action drop() {
        mark_to_drop(standard);
    }

    table exact_table {
        key = { hdr.key.a: exact; hdr.key.b: exact; }
        actions = { forward; drop; }
        const entries = {
            (1, 0x1234): forward(1);
            (255, 0): drop();
        }
        counters = counted;
    }
    table lpm_table {
        key = { hdr.key.c: lpm; }
        actions = { forward; drop; }
        const entries = {
            0x0A000000 &&& 0xFF000000: forward(1);
            0x0A0B0000 &&& 0xFFFF0000: forward(2);
            _: drop();
        }
    }
    table mixed_table {
        key = { hdr.key.a: range; hdr.key.b: ternary; hdr.key.c: optional; }
        actions = { forward; drop; }
        const default_action = drop();
        const entries = {
            (1 .. 5, 0x1200 &&& 0xFF00, 7): forward(3);
            (_, 0x0012 &&& 0x00FF, _): forward(4);
            (9, _, 8): forward(5);
            (_, _, _): forward(6);
        }
    }
    table initial_table {
        key = { hdr.key.b: ternary; }
        actions = { forward; drop; }
        size = 8;
        entries = {
            0x00FF &&& 0x00FF: forward(7);
            0x1000: forward(8);
        }
    }

    apply {
        exact_table.apply();
        lpm_table.apply();
        mixed_table.apply();
        initial_table.apply();
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
