// A packet says itself what shall become of it: for the test of the virtual fabric with a real program.
// replicate.json is what p4c makes of it:
//   p4c-bm2-ss --std p4-16 --arch v1model -o replicate.json replicate.p4
#include <core.p4>
#include <v1model.p4>

const bit<8> DROP_EARLY = 1;
const bit<8> MULTICAST = 2;
const bit<8> CLONE_EARLY = 3;
const bit<8> CLONE_LATE = 4;
const bit<8> RECIRCULATE = 5;
const bit<8> DROP_LATE = 6;
const bit<8> GROW = 7;
const bit<8> RESUBMIT = 8;

header order_t {
    bit<8> port;
    bit<8> queue;
    bit<8> what;
    bit<8> rounds;      // times it passed egress
    bit<32> enqueued_us;
    bit<32> waited_us;
    bit<16> met;        // packets in its queue when it came
    bit<16> left;       // packets in its queue when it went
}

header padding_t {
    bit<64> zeros;
}

struct headers_t {
    order_t order;
    padding_t padding;
}

struct metadata_t {
    @field_list(1) bit<8> again;
}

parser ReplicateParser(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    state start {
        packet.extract(hdr.order);
        transition accept;
    }
}

control ReplicateVerify(inout headers_t hdr, inout metadata_t meta) { apply { } }

control ReplicateIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    apply {
        if (hdr.order.what == DROP_EARLY) {
            mark_to_drop(std);
            exit;
        }
        std.egress_spec = (bit<9>) hdr.order.port;
        std.priority = hdr.order.queue[2:0];
        if (hdr.order.what == MULTICAST) {
            std.mcast_grp = 1;
        }
        if (hdr.order.what == CLONE_EARLY) {
            clone_preserving_field_list(CloneType.I2E, 1, 1);
        }
        if (hdr.order.what == RESUBMIT && meta.again == 0) {
            meta.again = 1;
            resubmit_preserving_field_list(1);
        }
    }
}

control ReplicateEgress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    apply {
        bit<8> rounds = hdr.order.rounds;
        hdr.order.rounds = rounds + 1;
        hdr.order.enqueued_us = std.enq_timestamp;
        hdr.order.waited_us = std.deq_timedelta;
        hdr.order.met = (bit<16>) std.enq_qdepth;
        hdr.order.left = (bit<16>) std.deq_qdepth;
        if (hdr.order.what == CLONE_LATE && std.instance_type == 0) {
            clone_preserving_field_list(CloneType.E2E, 1, 1);
        }
        if (hdr.order.what == RECIRCULATE && rounds == 0) {
            recirculate_preserving_field_list(1);
        }
        if (hdr.order.what == DROP_LATE) {
            mark_to_drop(std);
        }
        if (hdr.order.what == GROW) {
            hdr.padding.setValid();
        }
    }
}

control ReplicateCompute(inout headers_t hdr, inout metadata_t meta) { apply { } }

control ReplicateDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.order);
        packet.emit(hdr.padding);
    }
}

V1Switch(
    ReplicateParser(), ReplicateVerify(), ReplicateIngress(), ReplicateEgress(), ReplicateCompute(), ReplicateDeparser()
) main;
