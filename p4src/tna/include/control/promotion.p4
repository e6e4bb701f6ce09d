// SPDX-License-Identifier: Apache-2.0
// Promotion without reordering. Egress cannot write what ingress reads, so no packet knows whether the earlier ones of
// its flow have left. A flow changes its queue only with a packet that its sender says is the only one on its way
// (ALONE), or when nothing of it has come for the longest time that a packet can wait at the port (promotion_hold), or
// with the first packet of an iteration (of a connection) or of a flow. Without an entry in promotion_hold a pause
// moves nothing.
//
// A packet that must stay in its queue asks the sender to let its window run empty once (DRAIN). That is set in egress,
// which decides anew what ingress has decided from the same packets: the queue is known in the last stage of ingress,
// and no stage is left there to write it down.

// What is known before the packet's rank: whether it is the first of its flow's iteration, and for how long the stream
// has been silent.
// The packet leaves, in a queue by its rank.
#define IS_RANKED(meta) (meta.ranking != Ranking.NONE && meta.is_stale == 0 && meta.opens == 0 && meta.reopens == 0)

control Pause(inout headers_t hdr, inout metadata_t meta) {
    Register<bit<32>, stream_id_t>(STREAMS) stream_last;
    RegisterAction<bit<32>, stream_id_t, bit<32>>(stream_last) exchange = {
        void apply(inout bit<32> last, out bit<32> before) {
            before = last;
            last = meta.pause_now;
        }
    };

    @id(0x01000601)
    action wait_after_last(bit<32> ticks) {
        meta.hold_ticks = ticks;
    }

    action wait_for_ever() {
        meta.hold_ticks = HOLD_FOREVER;
    }

    // By port: the longest time of its queues.
    @id(0x02000601)
    table promotion_hold {
        key = { meta.egress_port: exact @name("port"); }
        actions = { wait_after_last; @defaultonly wait_for_ever; }
        const default_action = wait_for_ever();
        size = PORTS;
    }

    action take_idle() {
        meta.idle = meta.pause_now - meta.idle;
    }

    action take_left() {
        meta.idle = meta.hold_ticks |-| meta.idle;
    }

    apply {
        promotion_hold.apply();
        if (meta.is_connection == 1) {
            if (meta.starts == 1) {
                meta.bridge.may_move = 1;
            }
        } else if (meta.is_shim == 1 && hdr.shim.flags & SHIM_FLAG_ALONE != 0) {
            meta.bridge.may_move = 1;
        }
        // The first pass, which found that the group had been silent for long, recorded its own time as the last.
        if (meta.ranking == Ranking.WINDOW && meta.pass == PASS_OPEN) {
            meta.bridge.may_move = 1;
        }
        // Not by IS_RANKED, which for ranking `window` is known too late.
        if (meta.ranking != Ranking.NONE && meta.is_stale == 0 && meta.opens == 0 && meta.reopens == 0) {
            meta.idle = exchange.execute(meta.bridge.stream[STREAM_ID_BITS - 1:0]);
        }
        take_idle();
        take_left();
    }
}

control First(inout metadata_t meta) {
    Register<bit<32>, flow_id_t>(FLOWS, 0x80) flow_epoch;
    RegisterAction<bit<32>, flow_id_t, bit<1>>(flow_epoch) is_first = {
        void apply(inout bit<32> epoch, out bit<1> first) {
            first = 0;
            if (epoch != meta.epoch) {
                first = 1;
            }
            epoch = meta.epoch;
        }
    };

    apply {
        if (IS_RANKED(meta)) {
            meta.first = is_first.execute(meta.flow);
        }
    }
}

control StreamQueue(inout metadata_t meta, inout ingress_intrinsic_metadata_for_tm_t ig_tm_md) {
    Register<queue_t, stream_id_t>(STREAMS) stream_queue;
    RegisterAction<queue_t, stream_id_t, QueueId_t>(stream_queue) move = {
        void apply(inout queue_t present) {
            present = meta.bridge.wanted;
        }
    };
    RegisterAction<queue_t, stream_id_t, QueueId_t>(stream_queue) stay = {
        void apply(inout queue_t present, out QueueId_t found) {
            found = (QueueId_t)present;
        }
    };

    apply {
        if (IS_RANKED(meta)) {
            if (meta.bridge.may_move == 1 || (meta.first == 1 && meta.is_connection == 0)) {
                move.execute(meta.bridge.stream[STREAM_ID_BITS - 1:0]);
                ig_tm_md.qid = (QueueId_t)meta.bridge.wanted;
            } else if (meta.idle == 0) {
                move.execute(meta.bridge.stream[STREAM_ID_BITS - 1:0]);
                ig_tm_md.qid = (QueueId_t)meta.bridge.wanted;
            } else {
                ig_tm_md.qid = stay.execute(meta.bridge.stream[STREAM_ID_BITS - 1:0]);
            }
        }
        // Egress is told.
        if (meta.first == 1 && meta.is_connection == 0) {
            meta.bridge.may_move = 1;
        } else if (meta.idle == 0) {
            meta.bridge.may_move = 1;
        }
    }
}

control Promotion(in bridge_h bridge, out queue_t queue) {
    Register<queue_t, stream_id_t>(STREAMS) stream_queue;
    RegisterAction<queue_t, stream_id_t, queue_t>(stream_queue) move_or_stay = {
        void apply(inout queue_t present, out queue_t found) {
            if (bridge.may_move == 1) {
                present = bridge.wanted;
            }
            found = present;
        }
    };

    apply {
        queue = move_or_stay.execute(bridge.stream[STREAM_ID_BITS - 1:0]);
    }
}
