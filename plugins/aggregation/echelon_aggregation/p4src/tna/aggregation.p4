// SPDX-License-Identifier: Apache-2.0
// Aggregation on Tofino: adds up what the workers of a job send, block by block (docs/aggregation-protocol.md). The program
// that ranks packets fills the stages of a Tofino 1, so this is one of its own, for switches that aggregate.
//
// Egress of a Tofino parses no more than 160 bytes, so values are added in ingress. In the first pass of a packet ingress
// does not look at its values; it decides what becomes of it, and keeps what is known of each place. What needs values
// comes back twice, by the port that loops, for one half of them each time. The port has one queue, so that both halves
// change in the order of the decisions: the sum in a packet is what it was when its own decision was made.
//
// Whatever else comes passes once.

#include <core.p4>
#if __TARGET_TOFINO__ == 2
#include <t2na.p4>
#else
#include <tna.p4>
#endif

#include "tna/sizes_tna.h"
#include "shared/constants.h"
#include "sizes.h"
#include "headers.p4"
#include "types.p4"
#include "parser.p4"
// The selector of ECMP needs a stateful ALU, of which values leave none.
#define ONE_NEXT_HOP
#include "tna/include/control/forwarding.p4"
#include "tna/include/control/marking.p4"
#include "tna/include/control/ecn.p4"
#include "tree.p4"
#include "place.p4"
#include "outcome.p4"
#include "values.p4"

// What no statement has written is 0: the compiler lets fields share a container one after the other.
@pa_auto_init_metadata
// The compiler would feed it to stateful ALUs through hashes if it were in parts.
@pa_container_size("ingress", "meta.generation", 32)
control EchelonIngress(inout headers_t hdr, inout metadata_t meta, in ingress_intrinsic_metadata_t ig_intr_md,
                       in ingress_intrinsic_metadata_from_parser_t ig_prsr_md,
                       inout ingress_intrinsic_metadata_for_deparser_t ig_dprsr_md,
                       inout ingress_intrinsic_metadata_for_tm_t ig_tm_md) {
    Counter<bit<64>, bit<2>>(DROP_REASONS, CounterType_t.PACKETS_AND_BYTES) dropped;
    Forwarding() forwarding;
    Tree() tree;
    Place() place;
    Values() values;
    Loaded() loaded;
    @name("aggregation") Outcome() aggregation;

    @id(0x01000001)
    action set_class_queue(queue_t queue) {
        ig_tm_md.qid = (QueueId_t)queue;
        meta.bridge.wanted = queue;
    }

    @id(0x02000001)
    table traffic_class {
        key = { meta.traffic_class: exact @name("class"); }
        actions = { set_class_queue; NoAction; }
        const default_action = NoAction();
        size = 4;
    }

    action drop_because(bit<2> reason) {
        meta.drop = 1;
        meta.drop_reason = reason;
    }

    // In the order in which the reasons are told.
    @hidden
    table ipv4_header {
        key = {
            hdr.ipv4.version: ternary;
            hdr.ipv4.ihl: ternary;
            hdr.ipv4.ttl: ternary;
            meta.bad_checksum: ternary;
        }
        actions = { drop_because; NoAction; }
        const default_action = drop_because(DROP_MALFORMED);
        const entries = {
            (4, 0 &&& 0xC, _, _): drop_because(DROP_MALFORMED);
            (4, 4, _, _): drop_because(DROP_MALFORMED);
            (4, 5, _, true): drop_because(DROP_CHECKSUM);
            (4, _, 0 &&& 0xFE, _): drop_because(DROP_TTL);
            (4, _, _, _): NoAction();
        }
    }

    action take_port() {
        @in_hash { meta.bridge.came_from = 7w0 ++ ig_intr_md.ingress_port; }
    }

    action take_place() {
        @in_hash { meta.bridge.place = 5w0 ++ meta.block_place[PLACE_BITS - 1:0]; }
    }

    action take_sender() {
        @in_hash { meta.to_sender = meta.bridge.came_from[8:0]; }
    }

    action drop_counted(bit<2> reason) {
        dropped.count(reason);
        ig_dprsr_md.drop_ctl = 1;
    }

    action drop() {
        ig_dprsr_md.drop_ctl = 1;
    }

    action send() {
        ig_tm_md.ucast_egress_port = meta.egress_port;
    }

    action loop() {
        ig_tm_md.ucast_egress_port = LOOP_PORT;
        ig_tm_md.qid = 0;
    }

    action send_up() {
        ig_tm_md.ucast_egress_port = meta.to_parent;
    }

    action send_down() {
        ig_tm_md.mcast_grp_a = meta.children;
    }

    action send_back() {
        ig_tm_md.ucast_egress_port = meta.to_sender;
    }

    @hidden
    table way {
        key = {
            meta.drop: ternary;
            meta.drop_reason: ternary;
            meta.way: ternary;
            meta.forwarded: ternary;
            meta.flooded: ternary;
        }
        actions = { drop_counted; drop; send; loop; send_up; send_down; send_back; NoAction; }
        const default_action = NoAction();
        const entries = {
            (1, DROP_MALFORMED, _, _, _): drop_counted(DROP_MALFORMED);
            (1, DROP_CHECKSUM, _, _, _): drop_counted(DROP_CHECKSUM);
            (1, DROP_TTL, _, _, _): drop_counted(DROP_TTL);
            (_, _, Way.ROUTE, 1, _): send();
            (_, _, Way.ROUTE, _, 1): NoAction();
            (_, _, Way.ROUTE, _, _): drop_counted(DROP_NO_ROUTE);
            (_, _, Way.DROP, _, _): drop();
            (_, _, Way.LOOP, _, _): loop();
            (_, _, Way.PARENT, _, _): send_up();
            (_, _, Way.CHILDREN, _, _): send_down();
            (_, _, Way.SENDER, _, _): send_back();
        }
    }

    apply {
        if (ig_prsr_md.parser_err != 0) {
            drop_because(DROP_MALFORMED);
        } else if (hdr.ipv4.isValid() && meta.is_first == 1) {
            ipv4_header.apply();
        }
        tree.apply(hdr, meta, ig_intr_md);
        values.apply(hdr, meta);
        loaded.apply(hdr, meta);
        place.apply(hdr, meta);
        forwarding.apply(hdr, meta, ig_tm_md);
        traffic_class.apply();
        if (meta.is_first == 1 && hdr.ipv4.isValid()) {
            hdr.ipv4.ttl = hdr.ipv4.ttl - 1;
        }
        if (meta.is_first == 1 && hdr.ipv4.isValid() && hdr.ipv4.ihl != 5) {
            // RFC 1141: the checksum covers options that were not parsed; one less in the time to live is
            // 0x0100 more in the checksum, end-around carry included.
            if (hdr.ipv4.checksum[15:8] == 0xFF) {
                hdr.ipv4.checksum = hdr.ipv4.checksum + 0x0101;
            } else {
                hdr.ipv4.checksum = hdr.ipv4.checksum + 0x0100;
            }
        }
        take_sender();
        if (meta.is_first == 1) {
            take_port();
            take_place();
        }
        aggregation.apply(hdr, meta);
        way.apply();
    }
}

control EchelonIngressDeparser(packet_out packet, inout headers_t hdr, in metadata_t meta,
                               in ingress_intrinsic_metadata_for_deparser_t ig_dprsr_md) {
    apply {
        packet.emit(meta.bridge);
        packet.emit(hdr);
    }
}

// A copy of a result for a child that is a worker gets the worker's address; copies for switches go as they are.
control AggregationCopy(inout headers_t hdr, in egress_intrinsic_metadata_t eg_intr_md) {
    @id(0x01000807)
    action deliver(mac_t dst_mac, ipv4_t dst, bit<16> udp_port) {
        hdr.ethernet.dst = dst_mac;
        hdr.ipv4.dst = dst;
        hdr.udp.dst_port = udp_port;
    }

    @id(0x02000804)
    table aggregation_copy {
        key = {
            hdr.aggregation.tree: exact @name("tree");
            eg_intr_md.egress_rid: exact @name("copy");
        }
        actions = { deliver; NoAction; }
        const default_action = NoAction();
        size = AGGREGATION_MEMBERS;
    }

    apply {
        if (hdr.aggregation.isValid() && hdr.aggregation.kind == AGGREGATION_RESULT) {
            aggregation_copy.apply();
        }
    }
}

control EchelonEgress(inout headers_t hdr, inout egress_metadata_t meta, in egress_intrinsic_metadata_t eg_intr_md,
                      in egress_intrinsic_metadata_from_parser_t eg_prsr_md,
                      inout egress_intrinsic_metadata_for_deparser_t eg_dprsr_md,
                      inout egress_intrinsic_metadata_for_output_port_t eg_oport_md) {
    AggregationCopy() copy;
    Marking() marking;
    QueueDepth() queue_depth;

    apply {
        copy.apply(hdr, eg_intr_md);
        meta.queue = meta.bridge.wanted;
        if (hdr.ipv4.isValid() && hdr.ipv4.ihl == 5) {
            meta.is_plain_ipv4 = true;
        }
        marking.apply(hdr, meta);
        queue_depth.apply(hdr, meta, eg_intr_md);
        if (eg_intr_md.egress_port != LOOP_PORT) {
            meta.bridge.setInvalid();
        }
    }
}

control EchelonEgressDeparser(packet_out packet, inout headers_t hdr, in egress_metadata_t meta,
                              in egress_intrinsic_metadata_for_deparser_t eg_dprsr_md) {
    Checksum() ipv4_checksum;

    apply {
        if (meta.is_plain_ipv4) {
            hdr.ipv4.checksum = ipv4_checksum.update({
                hdr.ipv4.version, hdr.ipv4.ihl, hdr.ipv4.dscp, hdr.ipv4.ecn, hdr.ipv4.total_len,
                hdr.ipv4.identification, hdr.ipv4.flags, hdr.ipv4.frag_offset, hdr.ipv4.ttl, hdr.ipv4.protocol,
                hdr.ipv4.src, hdr.ipv4.dst
            });
        }
        packet.emit(meta.bridge);
        packet.emit(hdr);
    }
}

Pipeline(EchelonIngressParser(), EchelonIngress(), EchelonIngressDeparser(), EchelonEgressParser(), EchelonEgress(),
         EchelonEgressDeparser()) pipe;

Switch(pipe) main;
