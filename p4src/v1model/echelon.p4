// SPDX-License-Identifier: Apache-2.0
// Echelon's data plane for v1model: ranks every packet of a training job as the plan says for its flow.
//
//   classify -> flow: path and ranking -> forward -> rank -> level -> promotion -> mark -> queue
//
// Tables hold offsets and thresholds, never absolute times; no decision needs the control plane within an iteration.
// All state that decides is written in ingress, which BMv2 runs in one thread; egress only records what has left.
//
// A ranking is an action of table `flow` (shared/rankings) and, if it has state, a control of the same name
// (include/rankings), which makes the key of table `level`.

#include <core.p4>
#include <v1model.p4>

#include "sizes_v1model.h"
#include "../shared/constants.h"
#include "../shared/headers.p4"
#include "include/types.p4"
#include "../shared/epochs.p4"
#include "../shared/path.p4"
#include "../shared/rankings/fixed.p4"
#include "../shared/rankings/deadline.p4"
#include "../shared/rankings/attained.p4"
#include "../shared/rankings/window.p4"
#include "include/parser.p4"
#include "include/checksum.p4"
#include "include/control/classifier.p4"
#include "include/control/flow.p4"
#include "include/rankings/deadline.p4"
#include "include/rankings/attained.p4"
#include "include/rankings/window.p4"
#include "include/control/forwarding.p4"
#include "include/control/level.p4"
#include "include/control/promotion.p4"
#include "include/control/marking.p4"
#include "include/control/ecn.p4"

// Sequence number of the packet that left last, by port and queue: written in egress, read by Promotion in ingress.
register<bit<32>>(PORT_QUEUES) queue_left;
// When a packet of the stream left last: likewise.
register<time_us_t>(STREAMS) stream_left_us;
// The largest tardiness of a flow that ended in this iteration, by EchelonFlow: written in egress, read by Deadline.
register<bit<32>>(ECHELONFLOWS) late_us;

control EchelonIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    counter(DROP_REASONS, CounterType.packets_and_bytes) dropped;
    Classifier() classifier;
    Flow() flow;
    Forwarding() forwarding;
    Deadline() by_deadline;
    Attained() by_attained;
    Window() by_window;
    Level() level;
    Promotion() promotion;
    Marking() marking;
    VirtualQueue() virtual_queue;

    @id(0x01000001)
    action set_class_queue(queue_t queue) {
        meta.wanted = queue;
    }

    @id(0x02000001)
    table traffic_class {
        key = { meta.traffic_class: exact @name("class"); }
        actions = { set_class_queue; NoAction; }
        default_action = NoAction();
        size = 4;
    }

    action drop_because(bit<32> reason) {
        dropped.count(reason);
        mark_to_drop(standard_metadata);
    }

    apply {
        time_us_t now = standard_metadata.ingress_global_timestamp;
        if (standard_metadata.parser_error != error.NoError
            || (hdr.ipv4.isValid() && (hdr.ipv4.version != 4 || hdr.ipv4.ihl < 5))
            || (hdr.tcp.isValid() && (hdr.tcp.data_offset < 5
                || hdr.ipv4.total_len < 20 + ((bit<16>)hdr.tcp.data_offset << 2)))
            || (hdr.udp.isValid() && hdr.ipv4.total_len < 28)) {
            drop_because(DROP_MALFORMED);
        } else if (standard_metadata.checksum_error == 1) {
            drop_because(DROP_CHECKSUM);
        } else if (hdr.ipv4.isValid() && hdr.ipv4.ttl <= 1) {
            drop_because(DROP_TTL);
        } else {
            classifier.apply(hdr, meta, now);
            if (meta.is_flow == 1) {
                flow.apply(hdr, meta);
            }
            forwarding.apply(hdr, meta, standard_metadata);
            if (meta.forwarded == 1) {
                standard_metadata.egress_spec = meta.egress_port;
                if (meta.ranking == Ranking.DEADLINE) {
                    by_deadline.apply(hdr, meta, now, late_us);
                } else if (meta.ranking == Ranking.ATTAINED) {
                    by_attained.apply(meta, standard_metadata.packet_length);
                } else if (meta.ranking == Ranking.WINDOW) {
                    by_window.apply(meta, now);
                }
                if (meta.ranking == Ranking.NONE) {
                    traffic_class.apply();
                } else if (meta.ranking != Ranking.FIXED) {
                    level.apply(meta);
                }
                // These keys do not run out while the packet waits.
                if (meta.is_relative == 1 || meta.ranking == Ranking.ATTAINED) {
                    meta.rank_holds_us = 0xFFFFFFFF;
                }
                promotion.apply(hdr, meta, meta.egress_port, now, queue_left, stream_left_us);
                marking.apply(hdr, meta, standard_metadata);
                if (hdr.ipv4.isValid() && hdr.ipv4.ihl == 5) {
                    virtual_queue.apply(hdr, meta.egress_port, standard_metadata.packet_length, now);
                }
                if (meta.ranking != Ranking.NONE && (meta.first == 1 || meta.last == 1)) {
                    digest<flow_event_t>(1, { (bit<8>)(meta.last ++ meta.first), meta.flow, meta.epoch,
                                              meta.slack_key, now });
                }
            } else if (standard_metadata.mcast_grp == 0) {
                drop_because(DROP_NO_ROUTE);
            }
        }
    }
}

control EchelonEgress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    counter(PORT_QUEUES, CounterType.packets_and_bytes) sent;
    QueueDepth() queue_depth;
    Departure() departure;

    apply {
        if (meta.sequenced == 1) {
            // First: whoever sees the packet's number finds its time, too.
            if (meta.ranking != Ranking.NONE) {
                stream_left_us.write((bit<32>)meta.stream, standard_metadata.egress_global_timestamp);
            }
            queue_left.write((bit<32>)(standard_metadata.egress_port ++ meta.queue), meta.sequence);
        }
        // A packet keeps its rank while it waits. If that is out of date by now, the rest of the flow's window has to
        // leave the queue before the flow can be ranked anew: ask the sender for it.
        if (meta.ranking != Ranking.NONE && hdr.shim.isValid()
            && standard_metadata.deq_timedelta > meta.rank_holds_us) {
            hdr.shim.flags = hdr.shim.flags | SHIM_FLAG_DRAIN;
        }
        if (meta.ranking == Ranking.DEADLINE && meta.is_relative == 1) {
            departure.apply(hdr, meta, standard_metadata.egress_global_timestamp, late_us);
        }
        sent.count((bit<32>)(standard_metadata.egress_port ++ meta.queue));
        queue_depth.apply(hdr, meta, standard_metadata);
    }
}

V1Switch(EchelonParser(), EchelonVerifyChecksum(), EchelonIngress(), EchelonEgress(), EchelonComputeChecksum(),
         EchelonDeparser()) main;
