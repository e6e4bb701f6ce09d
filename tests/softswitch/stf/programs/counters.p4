// SPDX-License-Identifier: Apache-2.0
// Counters of every kind, indirect and of the entries of tables of every match kind.

#include <core.p4>
#include <v1model.p4>

header probe_t {
    bit<8>  ask;
    bit<8>  index;
    bit<32> x;
    bit<64> filler;
}

struct headers_t { probe_t probe; }
struct metadata_t { bit<1> unused; }

parser P(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    state start {
        packet.extract(hdr.probe);
        transition accept;
    }
}

control V(inout headers_t hdr, inout metadata_t meta) { apply {} }

control I(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    counter(4, CounterType.packets) by_packets;
    counter(4, CounterType.bytes) by_bytes;
    counter(4, CounterType.packets_and_bytes) by_both;
    direct_counter(CounterType.packets_and_bytes) of_exact;
    direct_counter(CounterType.packets) of_prefix;
    direct_counter(CounterType.bytes) of_masked;
    direct_counter(CounterType.packets_and_bytes) of_constant;

    action to(bit<9> port) { standard_metadata.egress_spec = port; }
    action counted_to(bit<9> port) {
        of_exact.count();
        standard_metadata.egress_spec = port;
    }

    table exact_match {
        key = { hdr.probe.x: exact; }
        actions = { counted_to; to; NoAction; }
        default_action = NoAction();
        counters = of_exact;
        size = 16;
    }
    table prefix_match {
        key = { hdr.probe.x: lpm; }
        actions = { to; NoAction; }
        default_action = NoAction();
        counters = of_prefix;
        size = 16;
    }
    table masked_match {
        key = { hdr.probe.x: ternary; }
        actions = { to; NoAction; }
        default_action = NoAction();
        counters = of_masked;
        size = 16;
    }
    table constant_match {
        key = { hdr.probe.index: exact; }
        actions = { to; NoAction; }
        default_action = NoAction();
        counters = of_constant;
        const entries = {
            1: to(1);
            2: to(2);
        }
    }

    apply {
        standard_metadata.egress_spec = 1;
        if (hdr.probe.ask == 1) {
            by_packets.count((bit<32>)hdr.probe.index);
        } else if (hdr.probe.ask == 2) {
            by_bytes.count((bit<32>)hdr.probe.index);
        } else if (hdr.probe.ask == 3) {
            by_both.count((bit<32>)hdr.probe.index);
            by_both.count((bit<32>)hdr.probe.index + 1);
        } else if (hdr.probe.ask == 4) {
            exact_match.apply();
        } else if (hdr.probe.ask == 5) {
            prefix_match.apply();
        } else if (hdr.probe.ask == 6) {
            masked_match.apply();
        } else if (hdr.probe.ask == 7) {
            constant_match.apply();
        }
    }
}

control E(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    counter(512, CounterType.packets_and_bytes) leaving;
    apply { leaving.count((bit<32>)standard_metadata.egress_port); }
}
control C(inout headers_t hdr, inout metadata_t meta) { apply {} }
control D(packet_out packet, in headers_t hdr) { apply { packet.emit(hdr.probe); } }

V1Switch(P(), V(), I(), E(), C(), D()) main;
