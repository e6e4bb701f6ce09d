// SPDX-License-Identifier: Apache-2.0
// Counters, registers, meters, hashes, groups, random numbers and loops.

#include <core.p4>
#include <v1model.p4>

header work_t {
    bit<8>  ask;
    bit<32> index;
    bit<32> value;
    bit<64> result;
}

struct headers_t { work_t work; }
struct metadata_t { bit<2> colour; }

parser P(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    state start {
        packet.extract(hdr.work);
        transition accept;
    }
}

control V(inout headers_t hdr, inout metadata_t meta) { apply {} }

control I(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    counter(10, CounterType.packets_and_bytes) seen;
    register<bit<32>>(10) memory;
    register<int<16>>(4) signed_memory;
    meter(4, MeterType.bytes) byte_meter;
    meter(4, MeterType.packets) packet_meter;
    direct_meter<bit<2>>(MeterType.packets) entry_meter;
    action_selector(HashAlgorithm.crc16, 32w16, 32w16) spread;
    action_profile(8) shared;

    action to(bit<9> port) { standard_metadata.egress_spec = port; }
    action metered() { entry_meter.read(meta.colour); }
    action sum() {
        bit<64> total = 0;
        for (bit<32> i = 1; i <= hdr.work.index; i = i + 1) {
            if (i == hdr.work.value) {
                continue;
            }
            total = total + (bit<64>)i;
        }
        hdr.work.result = total;
    }
    action branches() {
        if (hdr.work.index > 10) {
            if (hdr.work.value > 10) {
                hdr.work.result = 1;
            } else {
                hdr.work.result = 2;
            }
        } else if (hdr.work.value > 10) {
            hdr.work.result = 3;
        }
        hdr.work.value = hdr.work.value + 1;
    }

    table group {
        key = { hdr.work.index: exact; hdr.work.value: selector; }
        actions = { to; NoAction; }
        implementation = spread;
        size = 16;
    }
    table one {
        key = { hdr.work.index: exact; }
        actions = { to; NoAction; }
        implementation = shared;
        size = 16;
    }
    table policed {
        key = { hdr.work.index: exact; }
        actions = { metered; NoAction; }
        default_action = NoAction();
        meters = entry_meter;
        support_timeout = true;
        size = 16;
    }

    apply {
        standard_metadata.egress_spec = 1;
        if (hdr.work.ask == 0) {
            seen.count(hdr.work.index);
        } else if (hdr.work.ask == 1) {
            memory.write(hdr.work.index, hdr.work.value);
        } else if (hdr.work.ask == 2) {
            bit<32> found;
            memory.read(found, hdr.work.index);
            hdr.work.result = (bit<64>)found;
        } else if (hdr.work.ask == 3) {
            byte_meter.execute_meter(hdr.work.index, meta.colour);
            hdr.work.result = (bit<64>)meta.colour;
        } else if (hdr.work.ask == 4) {
            packet_meter.execute_meter(hdr.work.index, meta.colour);
            hdr.work.result = (bit<64>)meta.colour;
        } else if (hdr.work.ask == 5) {
            policed.apply();
            hdr.work.result = (bit<64>)meta.colour;
        } else if (hdr.work.ask == 6) {
            group.apply();
        } else if (hdr.work.ask == 7) {
            one.apply();
        } else if (hdr.work.ask == 8) {
            random(hdr.work.result, 64w10, (bit<64>)hdr.work.value);
        } else if (hdr.work.ask == 9) {
            sum();
        } else if (hdr.work.ask == 10) {
            branches();
        } else if (hdr.work.ask == 11) {
            hash(hdr.work.result, HashAlgorithm.crc32, 64w0, { hdr.work.index, hdr.work.value }, 64w0x100000000);
        } else if (hdr.work.ask == 12) {
            hash(hdr.work.result, HashAlgorithm.crc16, 64w0, { hdr.work.index, 4w5 }, 64w0x10000);
        } else if (hdr.work.ask == 13) {
            hash(hdr.work.result, HashAlgorithm.csum16, 64w100, { hdr.work.index, hdr.work.ask }, 64w1000);
        } else if (hdr.work.ask == 14) {
            hash(hdr.work.result, HashAlgorithm.identity, 64w0, { hdr.work.index, hdr.work.value },
                 64w0xffffffffffffffff);
        } else if (hdr.work.ask == 15) {
            hash(hdr.work.result, HashAlgorithm.xor16, 64w0, { hdr.work.index, hdr.work.value }, 64w0x10000);
        } else if (hdr.work.ask == 16) {
            signed_memory.write(1, (int<16>)(bit<16>)hdr.work.value);
            int<16> back;
            signed_memory.read(back, 1);
            hdr.work.result = back < 0 ? 64w1 : 64w0;
        }
    }
}

control E(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) { apply {} }
control C(inout headers_t hdr, inout metadata_t meta) { apply {} }
control D(packet_out packet, in headers_t hdr) { apply { packet.emit(hdr.work); } }

V1Switch(P(), V(), I(), E(), C(), D()) main;
