// SPDX-License-Identifier: Apache-2.0
// Carries packets through a fabric and does to them what they ask for: copies, second passes, ends. It keeps its own
// books in counters, which must agree with the fabric's.

#include <core.p4>
#include <v1model.p4>

#define ASK_MULTICAST 1
#define ASK_CLONE_EARLY 2
#define ASK_CLONE_LATE 3
#define ASK_RECIRCULATE 4
#define ASK_RESUBMIT 5
#define ASK_DROP_EARLY 6
#define ASK_DROP_LATE 7

#define ENDED_NO_ROUTE 0
#define ENDED_ASKED 1
#define ENDED_HOPS 2
#define ENDED_POLICED 3

header carrier_t {
    bit<16> to;
    bit<16> from;
    bit<32> number;
    bit<8>  ask;
    bit<8>  hops;
    bit<8>  copies;
    bit<8>  passes;
    bit<16> length;
}
// A program of the other kind puts this behind the header once, so that packets leave longer than they came.
header mark_t { bit<32> switches; }

struct headers_t {
    carrier_t carrier;
    mark_t    mark;
}
struct metadata_t {
    @field_list(1) bit<8> passes;
    bit<2> colour;
}

parser P(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    state start {
        packet.extract(hdr.carrier);
        transition accept;
    }
}

control V(inout headers_t hdr, inout metadata_t meta) { apply {} }

control I(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    counter(16, CounterType.packets_and_bytes) arrived;
    counter(8, CounterType.packets) ended;
    counter(1, CounterType.packets) looked_up;
    direct_counter(CounterType.packets) routed;
    meter(16, MeterType.packets) police;
    register<bit<32>>(64) seen;

    action no_route() {
        ended.count(ENDED_NO_ROUTE);
        mark_to_drop(standard_metadata);
    }
    action route(bit<9> port, bit<3> priority) {
        standard_metadata.egress_spec = port;
        standard_metadata.priority = priority;
    }

    table routes {
        key = { hdr.carrier.to: exact; }
        actions = { route; no_route; }
        default_action = no_route();
        counters = routed;
        size = 64;
    }

    apply {
        bit<32> before;
        if (meta.passes == 0) {
            arrived.count((bit<32>)standard_metadata.ingress_port);
            seen.read(before, (bit<32>)hdr.carrier.from & 63);
            seen.write((bit<32>)hdr.carrier.from & 63, before + 1);
        }
        police.execute_meter((bit<32>)standard_metadata.ingress_port, meta.colour);
        if (!hdr.carrier.isValid() || hdr.carrier.hops == 0) {
            ended.count(ENDED_HOPS);
            mark_to_drop(standard_metadata);
        } else if (meta.colour == 2) {
            ended.count(ENDED_POLICED);
            mark_to_drop(standard_metadata);
        } else if (hdr.carrier.ask == ASK_DROP_EARLY && hdr.carrier.copies == 0) {
            ended.count(ENDED_ASKED);
            mark_to_drop(standard_metadata);
        } else {
            looked_up.count(0);
            bool known = routes.apply().hit;
            hdr.carrier.hops = hdr.carrier.hops - 1;
            if (known && hdr.carrier.copies == 0) {
                if (hdr.carrier.ask == ASK_MULTICAST) {
                    standard_metadata.mcast_grp = 1;
                } else if (hdr.carrier.ask == ASK_CLONE_EARLY) {
                    clone_preserving_field_list(CloneType.I2E, 1, 1);
                } else if (hdr.carrier.ask == ASK_RESUBMIT && meta.passes == 0) {
                    meta.passes = 1;
                    resubmit_preserving_field_list(1);
                }
            }
        }
    }
}

control E(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    counter(16, CounterType.packets_and_bytes) departed;
    counter(8, CounterType.packets) ended_late;

    apply {
        bool copy = standard_metadata.instance_type == 1 || standard_metadata.instance_type == 2 ||
                    standard_metadata.instance_type == 5;
        if (copy) {
            hdr.carrier.copies = 1;
        }
        if (hdr.carrier.ask == ASK_DROP_LATE && !copy) {
            ended_late.count(0);
            mark_to_drop(standard_metadata);
        } else if (hdr.carrier.ask == ASK_RECIRCULATE && hdr.carrier.passes < 2 && !copy) {
            hdr.carrier.passes = hdr.carrier.passes + 1;
            hdr.carrier.hops = hdr.carrier.hops + 1;
            meta.passes = 1;
            recirculate_preserving_field_list(1);
        } else {
            if (hdr.carrier.ask == ASK_CLONE_LATE && hdr.carrier.copies == 0) {
                hdr.carrier.copies = 1;
                clone_preserving_field_list(CloneType.E2E, 2, 1);
            }
#ifdef MARK
            if (!hdr.mark.isValid() && hdr.carrier.length < 1400) {
                hdr.mark.setValid();
                hdr.mark.switches = (bit<32>)standard_metadata.deq_timedelta;
                hdr.carrier.length = hdr.carrier.length + 4;
            }
#endif
            departed.count((bit<32>)standard_metadata.egress_port);
        }
    }
}

control C(inout headers_t hdr, inout metadata_t meta) { apply {} }
control D(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.carrier);
        packet.emit(hdr.mark);
    }
}

V1Switch(P(), V(), I(), E(), C(), D()) main;
