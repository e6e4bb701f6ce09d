// State: registers of several widths read and written in one pass, indirect and direct counters, conditional updates.
// Indices are masked to the size of the array. Everything happens in ingress, which BMv2 runs in one thread.
#include <core.p4>
#include <v1model.p4>

header op_t {
    bit<8>  code;
    bit<8>  index;
    bit<48> value;
    bit<48> found;
    bit<8>  flags;
    bit<128> wide;
}

struct headers_t { op_t op; }
struct metadata_t {}

parser P(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    state start {
        packet.extract(hdr.op);
        transition accept;
    }
}

control V(inout headers_t hdr, inout metadata_t meta) { apply {} }

control I(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    register<bit<48>>(16) last;
    register<bit<1>>(256) bloom_a;
    register<bit<1>>(256) bloom_b;
    register<bit<128>>(4) wide;
    register<bit<5>>(8) small;
    counter(16, CounterType.packets) codes;
    counter(256, CounterType.bytes) sizes;
    direct_counter(CounterType.packets_and_bytes) hits;

    action add(bit<48> amount) {
        hits.count();
        bit<48> old;
        last.read(old, (bit<32>)hdr.op.index & 15);
        last.write((bit<32>)hdr.op.index & 15, old + amount);
        hdr.op.found = old;
    }
    action keep_largest() {
        hits.count();
        bit<48> old;
        last.read(old, (bit<32>)hdr.op.index & 15);
        if (hdr.op.value > old) {
            last.write((bit<32>)hdr.op.index & 15, hdr.op.value);
        }
        hdr.op.found = old;
    }
    table operations {
        key = { hdr.op.code: ternary; hdr.op.index: range; }
        actions = { add; keep_largest; NoAction; }
        default_action = NoAction();
        counters = hits;
        size = 32;
    }

    apply {
        standard_metadata.egress_spec = 2;
        if (!hdr.op.isValid()) {
            mark_to_drop(standard_metadata);
            return;
        }
        codes.count((bit<32>)hdr.op.code & 15);
        sizes.count((bit<32>)hdr.op.index);
        if (!operations.apply().hit) {
            bit<32> a;
            bit<32> b;
            hash(a, HashAlgorithm.crc16, 32w0, { hdr.op.value }, 32w256);
            hash(b, HashAlgorithm.crc32, 32w0, { hdr.op.value, hdr.op.code }, 32w256);
            bit<1> in_a;
            bit<1> in_b;
            bloom_a.read(in_a, a);
            bloom_b.read(in_b, b);
            hdr.op.flags[0:0] = in_a & in_b;
            bloom_a.write(a, 1);
            bloom_b.write(b, 1);
            bit<5> count;
            small.read(count, (bit<32>)hdr.op.code & 7);
            small.write((bit<32>)hdr.op.code & 7, count + 3);
            hdr.op.flags[7:3] = count;
        }
        bit<128> before;
        wide.read(before, (bit<32>)hdr.op.index & 3);
        wide.write((bit<32>)hdr.op.index & 3, before ^ hdr.op.wide);
        hdr.op.wide = before;
        if (hdr.op.code == 7) {
            standard_metadata.egress_spec = (bit<9>)hdr.op.index;
        }
    }
}

control E(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) { apply {} }
control C(inout headers_t hdr, inout metadata_t meta) { apply {} }
control D(packet_out packet, in headers_t hdr) { apply { packet.emit(hdr.op); } }

V1Switch(P(), V(), I(), E(), C(), D()) main;
