// SPDX-License-Identifier: Apache-2.0
// Echelon's data plane for Tofino: ranks every packet of a training job as the plan says for its flow.
//
//   classify -> flow: path and ranking -> forward -> iteration -> rank -> level -> promotion -> queue -> mark
//
// Tables hold offsets and thresholds, never absolute times; no decision needs the control plane within an iteration.
// Each register is accessed once per pass, in ingress; a packet that opens an iteration is resubmitted once.
//
// A ranking is a value of enum Ranking, an action of table `flow`, and, if it keeps state, a control of the same name
// (include/rankings), which makes the key of table `level` (docs/extending.md).
//
// Not parsed, and forwarded as Ethernet frames: VLAN tags and IPv6. There is no ACL, and no packet goes to the CPU.

#include <core.p4>
#if __TARGET_TOFINO__ == 2
#include <t2na.p4>
#else
#include <tna.p4>
#endif

#include "sizes_tna.h"
#include "../shared/constants.h"
#include "../shared/headers.p4"
#include "include/types.p4"
#include "include/parser.p4"
#include "include/control/clock.p4"
#include "include/control/classifier.p4"
#include "include/control/flow.p4"
#include "include/control/forwarding.p4"
#include "include/control/iteration.p4"
#include "include/control/unit.p4"
#include "include/rankings/deadline.p4"
#include "include/rankings/attained.p4"
#include "include/rankings/window.p4"
#include "include/control/level.p4"
#include "include/control/promotion.p4"
#define MARKS_ROCE
#include "include/control/marking.p4"
#include "include/control/ecn.p4"

const bit<3> DIGEST_FLOW_EVENT = 1;
const bit<3> RESUBMIT = 1;

// What no statement has written is 0, as in v1model: the compiler lets fields share a container one after the other.
INITIALIZED_METADATA
// p4c describes the fields of a digest wrongly where two share a container and leave bits between them.
@pa_solitary("ingress", "meta.first")
control EchelonIngress(inout headers_t hdr, inout metadata_t meta, in ingress_intrinsic_metadata_t ig_intr_md,
                       in ingress_intrinsic_metadata_from_parser_t ig_prsr_md,
                       inout ingress_intrinsic_metadata_for_deparser_t ig_dprsr_md,
                       inout ingress_intrinsic_metadata_for_tm_t ig_tm_md) {
    Counter<bit<64>, bit<2>>(DROP_REASONS, CounterType_t.PACKETS_AND_BYTES) dropped;
    Classifier() classifier;
    Position() position;
    Flow() flow;
    Forwarding() forwarding;
    Iteration() iteration;
    Profile() profile;
    Unit() unit;
    Left() left;
    Deadline() by_deadline;
    Memory() memory;
    Lateness() lateness;
    Top() top;
    Attained() by_attained;
    Window() by_window;
    Level() level;
    Pause() pause;
    First() first;
    StreamQueue() stream_queue;

    // Egress uses the wanted queue for a packet without a ranking.
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

    TAKE_TICKS(meta, ig_prsr_md.global_tstamp)

    // A stage does one operation on a field, so what takes several is written as an action for each.
    bit<32> quarter = 0;
    bit<32> part = 0;
    bit<32> smaller_part = 0;

    action take_memory() {
        @in_hash { meta.told_memory = MEMORY_AS_RANK(meta.resubmit.memory); }
    }

    action take_quarter() {
        quarter = meta.told_memory >> 2;
    }

    action keep_three_quarters() {
        meta.told_memory = meta.told_memory - quarter;
    }

    action take_reference() {
        @in_hash { meta.told = (int<32>)meta.resubmit.reference; }
    }

    // Microseconds become ticks: 1 - 1/64 - 1/128 is 1/1.024.
    action take_age() {
        @in_hash { meta.told_age = hdr.shim.age_us; }
    }

    action take_part() {
        @in_hash { part = 6w0 ++ hdr.shim.age_us[31:6]; }
    }

    action take_smaller_part() {
        @in_hash { smaller_part = 7w0 ++ hdr.shim.age_us[31:7]; }
    }

    action hear_memory() {
        @in_hash { meta.told_memory = MEMORY_AS_RANK(hdr.shim.memory); }
    }

    action take_length() {
        @in_hash { meta.ip_bytes = 16w0 ++ hdr.ipv4.total_len; }
    }

    action add_parts() {
        part = part + smaller_part;
    }

    action take_told() {
        meta.told = (int<32>)(meta.now - meta.told_age);
    }

    action correct_told() {
        meta.told = meta.told + (int<32>)part;
    }

    action take_flow() {
        @in_hash { meta.bridge.stream = 4w0 ++ meta.flow; }
    }

    action take_connection() {
        @in_hash { meta.bridge.stream = 4w1 ++ meta.connection; }
    }

    action add_memory() {
        meta.handicap = meta.handicap + meta.bridge.memory;
    }

    action take_tardiness() {
        meta.raw = (int<32>)(meta.begun - meta.bridge.reference);
        meta.handicap = meta.handicap - meta.left;
    }

    // A field of a digest is not one that is calculated with.
    action take_slack() {
        @in_hash { meta.slack_key = (bit<32>)meta.raw; }
    }

    action turn_slack() {
        meta.slack_key = SLACK_BIAS - meta.slack_key;
    }

    // The time left in a window, and whether it is within the running period, or after the end of one that was not long
    // ago. Anything else is long ago, or the register was never written. Signs are not tested: numbers that are read in
    // slices cannot be added to.
    action take_left() {
        meta.raw = (int<32>)(meta.begun - meta.now);
        meta.handicap = meta.offset_ticks << SILENT_SHIFT;
    }

    action take_period() {
        meta.raw = (int<32>)meta.offset_ticks;
    }

    action take_bound() {
        meta.alone = (int<32>)(meta.handicap + meta.offset_ticks);
        meta.handicap = (bit<32>)meta.raw + meta.handicap;
    }

    action compare_silence() {
        meta.begun = meta.handicap |-| (bit<32>)meta.alone;
    }

    action tell_told() {
        @in_hash { meta.resubmit.reference = (bit<32>)meta.told; }
    }

    action tell_begun() {
        @in_hash { meta.resubmit.reference = meta.begun; }
    }

    action take_rank() {
        meta.alone = meta.raw - meta.alone;
        meta.raw = meta.raw + (int<32>)meta.handicap;
    }

    action turn() {
        meta.raw = (int<32>)meta.handicap - meta.raw;
    }

    // The pass is PASS_OPEN or PASS_ITERATION.
    action resubmit_flow() {
        @in_hash {
            meta.resubmit.tag = meta.last ++ meta.starts ++ meta.reopens ++ meta.opens ++ meta.flow;
        }
    }

    // Nested conditions keep what follows out of their stages, so conditions stand beside each other here, each around
    // what one stage does. See "Stages" in docs/data-plane.md.
    apply {
        take_ticks();
        take_pause_ticks();
        meta.bridge.setValid();
        meta.resubmit.setValid();
        classifier.apply(hdr, meta);
        if (ig_prsr_md.parser_err != 0 || meta.malformed == 1 || meta.too_short != 0) {
            drop_because(DROP_MALFORMED);
        } else if (hdr.ipv4.isValid()) {
            ipv4_header.apply();
        }
        // The memory that the packet's first pass found, or that its sender knows.
        if (meta.pass == PASS_OPEN) {
            take_memory();
        } else if (hdr.shim.isValid() && hdr.shim.version == SHIM_VERSION) {
            hear_memory();
        }
        if (meta.pass == PASS_OPEN) {
            take_quarter();
        }
        keep_three_quarters();
        if (meta.pass != PASS_OPEN && hdr.shim.isValid() && hdr.shim.version == SHIM_VERSION) {
            take_age();
        }
        if (meta.pass != PASS_OPEN && hdr.shim.isValid() && hdr.shim.version == SHIM_VERSION) {
            take_part();
        }
        if (meta.pass != PASS_OPEN && hdr.shim.isValid() && hdr.shim.version == SHIM_VERSION) {
            take_smaller_part();
        }
        add_parts();
        if (meta.pass == PASS_OPEN) {
            take_reference();
        } else {
            take_told();
        }
        correct_told();
        take_length();
        position.apply(hdr, meta);
        if (meta.is_connection == 1) {
            take_connection();
        } else {
            take_flow();
        }
        if (meta.is_flow == 1 && meta.drop == 0) {
            flow.apply(hdr, meta);
        }
        forwarding.apply(hdr, meta, ig_tm_md);
        left.apply(meta);
        if (meta.ranking != Ranking.NONE && meta.ranking != Ranking.FIXED) {
            profile.apply(meta);
        }
        if (meta.ranking == Ranking.DEADLINE) {
            by_deadline.apply(meta);
        } else if (meta.ranking == Ranking.WINDOW) {
            by_window.apply(meta);
        }
        if (meta.ranking == Ranking.DEADLINE) {
            memory.apply(meta);
        }
        // Statements of a ranking stand where a stage has room for them.
        if (meta.ranking == Ranking.DSCP) {
            meta.level_key = (bit<32>)hdr.ipv4.dscp;
        }
        by_attained.apply(meta);
        iteration.apply(meta);
        if (meta.ranking == Ranking.DEADLINE) {
            take_tardiness();
        } else if (meta.ranking == Ranking.WINDOW) {
            if (meta.pass == PASS_OPEN) {
                take_period();
            } else {
                take_left();
            }
        }
        if (meta.ranking == Ranking.DEADLINE) {
            take_slack();
        }
        if (meta.ranking == Ranking.DEADLINE) {
            turn_slack();
        }
        if (hdr.shim.isValid() && hdr.shim.version == SHIM_VERSION) {
            if (hdr.shim.age_us != 0) {
                tell_told();
            } else {
                tell_begun();
            }
        } else {
            tell_begun();
        }
        if (meta.ranking == Ranking.DEADLINE && meta.bridge.is_relative == 1) {
            add_memory();
        } else if (meta.ranking == Ranking.WINDOW) {
            take_bound();
        }
        unit.apply(meta);
        if (meta.ranking == Ranking.DEADLINE) {
            if (meta.bridge.is_relative == 1) {
                take_rank();
            } else {
                turn();
            }
        } else if (meta.ranking == Ranking.WINDOW) {
            compare_silence();
        }
        pause.apply(hdr, meta);
        if (meta.ranking == Ranking.WINDOW && meta.pass == PASS_FIRST && meta.opens == 0) {
            if (meta.begun != 0) {
                meta.reopens = 1;
            }
        }
        top.apply(meta);
        lateness.apply(meta);
        first.apply(meta);
        // The queue of a packet that no ranking applies to.
        if (meta.forwarded == 1 && (meta.ranking == Ranking.NONE || meta.is_stale == 1)) {
            traffic_class.apply();
        }
        if (meta.ranking != Ranking.NONE && meta.is_stale == 0) {
            meta.bridge.is_ranked = 1;
        }
        level.apply(meta);
        stream_queue.apply(meta, ig_tm_md);
        if (meta.opens == 0 && meta.forwarded == 0 && meta.flooded == 0 && meta.drop == 0) {
            drop_because(DROP_NO_ROUTE);
        }
        if (meta.forwarded == 1 && meta.opens == 0 && meta.reopens == 0) {
            ig_tm_md.ucast_egress_port = meta.egress_port;
        }
        resubmit_flow();
        if (meta.drop == 0 && (meta.opens == 1 || meta.reopens == 1)) {
            ig_dprsr_md.resubmit_type = RESUBMIT;
        }
        if (IS_RANKED(meta) && (meta.first == 1 || meta.last == 1)) {
            ig_dprsr_md.digest_type = DIGEST_FLOW_EVENT;
        }
        if (hdr.ipv4.isValid()) {
            hdr.ipv4.ttl = hdr.ipv4.ttl - 1;
        }
        if (hdr.ipv4.isValid() && hdr.ipv4.ihl != 5) {
            // RFC 1141: the checksum covers options that were not parsed; one less in the time to live is
            // 0x0100 more in the checksum, end-around carry included.
            if (hdr.ipv4.checksum[15:8] == 0xFF) {
                hdr.ipv4.checksum = hdr.ipv4.checksum + 0x0101;
            } else {
                hdr.ipv4.checksum = hdr.ipv4.checksum + 0x0100;
            }
        }
        if (meta.drop == 1) {
            dropped.count(meta.drop_reason);
            ig_dprsr_md.drop_ctl = 1;
        }
    }
}

control EchelonIngressDeparser(packet_out packet, inout headers_t hdr, in metadata_t meta,
                               in ingress_intrinsic_metadata_for_deparser_t ig_dprsr_md) {
    Digest<flow_event_t>(DIGEST_FLOW_EVENT) flow_event;
    Resubmit(RESUBMIT) resubmit;

    apply {
        if (ig_dprsr_md.digest_type == DIGEST_FLOW_EVENT) {
            flow_event.pack({ meta.last, meta.first, meta.flow, meta.epoch, meta.slack_key, meta.now });
        }
        if (ig_dprsr_md.resubmit_type == RESUBMIT) {
            resubmit.emit(meta.resubmit);
        }
        packet.emit(meta.bridge);
        packet.emit(hdr);
    }
}

control EchelonEgress(inout headers_t hdr, inout egress_metadata_t meta, in egress_intrinsic_metadata_t eg_intr_md,
                      in egress_intrinsic_metadata_from_parser_t eg_prsr_md,
                      inout egress_intrinsic_metadata_for_deparser_t eg_dprsr_md,
                      inout egress_intrinsic_metadata_for_output_port_t eg_oport_md) {
    Counter<bit<64>, bit<14>>(PORT_QUEUES, CounterType_t.PACKETS_AND_BYTES) sent;
    Hash<bit<14>>(HashAlgorithm_t.IDENTITY) port_queue;
    Promotion() promotion;
    Marking() marking;
    QueueDepth() queue_depth;

    bit<32> part = 0;
    bit<32> smaller_part = 0;

    TAKE_TICKS(meta, eg_prsr_md.global_tstamp)

    // Ticks become microseconds, a little less than 1.024 of each: an age that a switch makes larger would grow on its
    // way round.
    action take_age() {
        meta.age = meta.now - meta.bridge.reference;
    }

    action take_parts() {
        part = meta.age >> 6;
        smaller_part = meta.age >> 7;
    }

    action add_parts() {
        part = part + smaller_part;
    }

    action tell_age() {
        hdr.shim.age_us = meta.age + part;
    }

    action tell_memory() {
        @in_hash { hdr.shim.memory = meta.bridge.memory[15 + MEMORY_SHIFT:MEMORY_SHIFT]; }
    }

    apply {
        take_ticks();
        if (meta.bridge.is_ranked == 1) {
            promotion.apply(meta.bridge, meta.queue);
        } else {
            meta.queue = meta.bridge.wanted;
        }
        // The packet had to stay in a queue that its flow has outgrown.
        if (meta.bridge.is_ranked == 1 && hdr.shim.isValid() && meta.queue != meta.bridge.wanted) {
            hdr.shim.flags = hdr.shim.flags | SHIM_FLAG_DRAIN;
        }
        take_age();
        take_parts();
        add_parts();
        if (meta.bridge.is_ranked == 1 && meta.bridge.is_relative == 1 && hdr.shim.isValid()) {
            tell_age();
        }
        if (meta.bridge.is_ranked == 1 && meta.bridge.is_relative == 1 && hdr.shim.isValid()) {
            tell_memory();
        }
        // Zero says that nobody knows.
        if (meta.bridge.is_ranked == 1 && meta.bridge.is_relative == 1 && hdr.shim.isValid()) {
            if (hdr.shim.age_us == 0) {
                hdr.shim.age_us = 1;
            }
        }
        if (hdr.ipv4.isValid() && hdr.ipv4.ihl == 5) {
            meta.is_plain_ipv4 = true;
        }
        sent.count(port_queue.get({ eg_intr_md.egress_port, meta.queue[4:0] }));
        marking.apply(hdr, meta);
        queue_depth.apply(hdr, meta, eg_intr_md);
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
        packet.emit(hdr);
    }
}

Pipeline(EchelonIngressParser(), EchelonIngress(), EchelonIngressDeparser(), EchelonEgressParser(), EchelonEgress(),
         EchelonEgressDeparser()) pipe;

Switch(pipe) main;
