// SPDX-License-Identifier: Apache-2.0
// The v1model program that ranks packets, with aggregation: it also adds up what the workers of a job send, block by block
// (docs/aggregation-protocol.md). What ranks is p4src/v1model, of which this includes all but the program itself.

#include <core.p4>
#include <v1model.p4>

#include "v1model/sizes_v1model.h"
#include "shared/constants.h"
#include "shared/headers.p4"
#include "v1model/include/types.p4"
#include "shared/epochs.p4"
#include "sizes.h"
#include "../shared/headers.p4"

struct headers_t {
    ethernet_t ethernet;
    ipv4_h     ipv4;
    tcp_t      tcp;
    udp_t      udp;
    bth_t      bth;
    shim_t     shim;
    aggregation_t aggregation;
    values_t   values;
}

struct metadata_t {
#include "v1model/include/metadata_fields.p4"

    // When the block's flow should finish; whether the packet ends in the memory. (control Aggregation)
    time_us_t        aggregation_due_us;
    bit<1>           ended;
}

#include "parser.p4"
#include "v1model/include/checksum.p4"
#include "v1model/include/control/position.p4"
#include "v1model/include/control/classifier.p4"
#include "v1model/include/control/flow.p4"
#include "v1model/include/rankings/deadline.p4"
#include "v1model/include/rankings/attained.p4"
#include "v1model/include/rankings/window.p4"
#include "v1model/include/control/forwarding.p4"
#include "v1model/include/control/level.p4"
#include "v1model/include/control/order.p4"
#include "v1model/include/control/pause.p4"
#include "v1model/include/control/promotion.p4"
#include "v1model/include/control/marking.p4"
#include "v1model/include/control/ecn.p4"
#include "v1model/include/registers.p4"
#include "control.p4"

control EchelonIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    counter(DROP_REASONS, CounterType.packets_and_bytes) dropped;
    Classifier() classifier;
    Flow() flow;
    Forwarding() forwarding;
    Deadline() by_deadline;
    Attained() by_attained;
    Window() by_window;
    Level() level;
    Order() order;
    Pause() pause;
    Promotion() promotion;
    Marking() marking;
    VirtualQueue() virtual_queue;
    Aggregation() aggregation;

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
            classifier.apply(hdr, meta, now, connection_sent, connection_last_us, stream_left_us);
            pause.apply(hdr, now, connection_sent, connection_last_us, connection_stays, connection_acked);
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
                } else if (meta.ranking == Ranking.DSCP) {
                    meta.level_key = (bit<32>)hdr.ipv4.dscp;
                }
                if (meta.ranking == Ranking.NONE) {
                    traffic_class.apply();
                } else if (meta.is_relative == 1) {
                    order.apply(meta, meta.egress_port, now, queue_left, queue_rank, queue_rank_us, queue_pace,
                                queue_ranked, queue_ranked_us, queue_until_us, queue_emptied_us);
                } else if (meta.ranking != Ranking.FIXED) {
                    level.apply(meta);
                }
                // These keys do not run out while the packet waits.
                if (meta.is_relative == 1 || meta.ranking == Ranking.ATTAINED || meta.ranking == Ranking.DSCP) {
                    meta.rank_holds_us = 0xFFFFFFFF;
                }
                if (hdr.aggregation.isValid()) {
                    // Blocks may overtake each other: their queue is the one that the rank asks for.
                    meta.queue = meta.wanted;
                    if (meta.is_relative == 1) {
                        // They are not numbered, so that they count for a time, whether they wait or not.
                        queue_rank.write((bit<32>)(meta.egress_port ++ meta.queue), meta.rank ++ meta.stream);
                        queue_rank_us.write((bit<32>)(meta.egress_port ++ meta.queue), now);
                        queue_pace.write((bit<32>)(meta.egress_port ++ meta.queue), meta.pace);
                        queue_until_us.write((bit<32>)(meta.egress_port ++ meta.queue), now + (time_us_t)meta.idle_us);
                    }
                    meta.aggregation_due_us = meta.ranking == Ranking.DEADLINE
                        ? meta.reference_us + (time_us_t)meta.due_us : 0x7FFFFFFFFFFF;
                    meta.ranking = Ranking.NONE;
                    aggregation.apply(hdr, meta, standard_metadata, now);
                } else
                promotion.apply(hdr, meta, meta.egress_port, now, queue_left, queue_rank, queue_rank_us, queue_pace,
                                queue_ranked, queue_ranked_us, queue_until_us, queue_emptied_us, stream_left_us,
                                connection_stays, connection_acked);
                marking.apply(hdr, meta, standard_metadata);
                if (hdr.ipv4.isValid() && hdr.ipv4.ihl == 5
                    && meta.ended == 0
                ) {
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
    AggregationCopy() aggregation_copy;

    apply {
        if (hdr.aggregation.isValid()) {
            aggregation_copy.apply(hdr, standard_metadata);
        }
        if (meta.sequenced == 1) {
            // The time first: a reader that sees the packet's number must find its time, too.
            if (meta.in_stream == 1) {
                stream_left_us.write((bit<32>)meta.stream, standard_metadata.egress_global_timestamp);
            }
            if (meta.is_relative == 1 && meta.ranking != Ranking.NONE) {
                queue_rank.write((bit<32>)(standard_metadata.egress_port ++ meta.queue), meta.rank ++ meta.stream);
                queue_rank_us.write((bit<32>)(standard_metadata.egress_port ++ meta.queue),
                                    standard_metadata.ingress_global_timestamp);
                queue_pace.write((bit<32>)(standard_metadata.egress_port ++ meta.queue), meta.pace);
            }
            queue_left.write((bit<32>)(standard_metadata.egress_port ++ meta.queue), meta.sequence);
            if (standard_metadata.deq_qdepth == 0) {
                queue_emptied_us.write((bit<32>)(standard_metadata.egress_port ++ meta.queue),
                                       standard_metadata.egress_global_timestamp);
            }
        }
        // A packet keeps its rank while it waits. If the rank is out of date, the rest of the flow's window has to
        // leave the queue before the flow can be ranked anew, and DRAIN asks the sender for that.
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
