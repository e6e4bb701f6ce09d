// SPDX-License-Identifier: Apache-2.0
// Promotion without reordering. Every packet that enters a queue of a port takes the queue's next sequence number;
// egress records the number of the packet that left last (a queue is a FIFO). A flow changes its queue only when the
// packet that it sent last has left, so no packet overtakes an earlier one of its own flow. While it waits for that,
// DRAIN in the shim (set here, and in egress on packets whose rank went out of date in the queue) asks the sender to let
// its window run empty once.
//
// RoCE takes a packet that was overtaken for a lost one, and sends all anew from there. So a queue pair rises only with
// the first packet of a message, and a packet of no flow follows those before it into their queue.
//
// Flows that are ranked relative to others go by stream: a job's flows from one host to another, or those of a connection.
// A stream whose packets wait never rises, and needs no DRAIN: control Order puts it in its place once none of them does.
// But it falls at once to below any queue whose first packet is more urgent. Queues are strict, so its packets above have
// left before the first below does.
//
// Flows that are known by their bytes follow each other on one connection, whose order must not be lost either: there all
// of this goes by connection. Its queue starts anew with each iteration; that of a flow with shim with each flow.
//
// Sequence numbers and not times: two packets of one microsecond would be taken for each other.
//
// Where the queue is outside the switch, egress sees a packet pass that has yet to wait. Such a queue has an entry in
// promotion_hold: the longest time that a packet can wait there. A flow then changes its queue only that long after its
// last packet, or with a packet that is the only one on its way: its sender says so (ALONE), or all that its connection
// has sent before has been acknowledged (control Pause).

control Promotion(inout headers_t hdr, inout metadata_t meta, in port_t port, in time_us_t now,
                  register<bit<32>> queue_left, register<ranked_t> queue_rank, register<time_us_t> queue_rank_us,
                  register<pace_t> queue_pace, register<bit<32>> queue_ranked, register<time_us_t> queue_ranked_us,
                  register<time_us_t> queue_until_us, register<time_us_t> queue_emptied_us,
                  register<time_us_t> stream_left_us,
                  register<bit<1>> connection_stays, register<bit<33>> connection_acked) {
    register<bit<32>>(PORT_QUEUES) queue_entered;
    register<valid_epoch_t>(FLOWS) flow_epoch;
    register<queue_t>(STREAMS) stream_queue;
    register<bit<32>>(STREAMS) stream_sequence;
    queue_t current = 0;
    bit<32> hold_us = 0;
    bit<1> is_outside = 0;
    bit<1> stays = 0;

    @id(0x01000601)
    action wait_after_last(bit<32> us) {
        hold_us = us;
    }

    @id(0x02000601)
    table promotion_hold {
        key = {
            port: exact @name("port");
            current: exact @name("queue");
        }
        actions = { wait_after_last; NoAction; }
        default_action = NoAction();
        size = PORT_QUEUES;
    }

    apply {
        bit<32> index = (bit<32>)meta.flow;
        meta.queue = meta.wanted;
        if (meta.ranking == Ranking.NONE && meta.is_connection == 1 && hdr.bth.isValid()) {
            meta.in_stream = 1;
            meta.stream = 2w1 ++ meta.connection;
            stream_queue.read(meta.queue, (bit<32>)meta.stream);
        }
        if (meta.ranking != Ranking.NONE) {
            valid_epoch_t epoch;
            flow_epoch.read(epoch, index);
            bit<8> ahead = meta.epoch - epoch[7:0];
            if (epoch != 0 && ahead >= STRAGGLER_FROM) {
                // Of an iteration that is over: it neither starts the flow anew nor moves it.
                meta.ranking = Ranking.NONE;
            } else {
                if (epoch == 0 || ahead != 0) {
                    flow_epoch.write(index, 1w1 ++ meta.epoch);
                    meta.first = 1;
                }
                meta.in_stream = 1;
                bit<1> anew = meta.first;
                if (meta.is_connection == 1) {
                    anew = meta.reopened;
                } else if (meta.is_relative == 0) {
                    meta.stream = 2w0 ++ meta.flow;
                } else if (meta.stream[15:14] == 2) {
                    // Other flows of the stream may be on their way.
                    anew = 0;
                }
                stream_queue.read(current, (bit<32>)meta.stream);
                if (meta.is_relative == 1 || ((anew == 0 || meta.in_sequence == 1) && current != meta.wanted)) {
                    bit<32> mine;
                    bit<32> left;
                    stream_sequence.read(mine, (bit<32>)meta.stream);
                    queue_left.read(left, (bit<32>)(port ++ current));
                    bit<32> behind = left - mine;
                    bit<1> waits = behind[31:31];
                    if (anew == 1 && meta.in_sequence == 0) {
                        waits = 0;
                    }
                    if ((anew == 0 || meta.is_relative == 1) && promotion_hold.apply().hit) {
                        is_outside = 1;
                    }
                    if (is_outside == 1 && anew == 0) {
                        bit<33> acked;
                        connection_acked.read(acked, (bit<32>)meta.connection);
                        if ((hdr.shim.isValid() && hdr.shim.version == SHIM_VERSION
                             && hdr.shim.flags & SHIM_FLAG_ALONE != 0)
                            || (meta.in_sequence == 1 && meta.sequence_of == meta.connection && meta.ahead == 0
                                && acked == 1w1 ++ meta.seq)) {
                            waits = 0;
                        } else {
                            // Signed: egress may have written since this packet arrived.
                            time_us_t left_us;
                            stream_left_us.read(left_us, (bit<32>)meta.stream);
                            time_us_t since_us = now - left_us;
                            if (hold_us == HOLD_FOREVER || since_us[47:47] == 1 || since_us < (time_us_t)hold_us) {
                                waits = 1;
                            }
                        }
                    }
                    if (hdr.bth.isValid() && meta.wanted > current
                        && ((bit<32>)BTH_CONTINUES >> (bit<8>)hdr.bth.opcode[4:0])[0:0] == 1) {
                        waits = 1;
                    }
                    if (waits == 1 && meta.is_relative == 1) {
                        meta.queue = current;
                        // What is outside the switch is not quite strict.
                        if (meta.ceiling < current && is_outside == 0) {
                            meta.queue = meta.ceiling;
                        }
                    } else if (waits == 1) {
                        meta.queue = current;
                        stays = (bit<1>)(meta.wanted > current);
                        if (hdr.shim.isValid()) {
                            hdr.shim.flags = hdr.shim.flags | SHIM_FLAG_DRAIN;
                        }
                    }
                }
            }
        }
        queue_entered.read(meta.sequence, (bit<32>)(port ++ meta.queue));
        meta.sequence = meta.sequence + 1;
        meta.sequenced = 1;
        queue_entered.write((bit<32>)(port ++ meta.queue), meta.sequence);
        if (meta.in_stream == 1) {
            stream_queue.write((bit<32>)meta.stream, meta.queue);
            stream_sequence.write((bit<32>)meta.stream, meta.sequence);
        }
        if (meta.is_relative == 1 && meta.ranking != Ranking.NONE) {
            bit<32> newest;
            bit<32> gone;
            time_us_t newest_us;
            time_us_t emptied_us;
            queue_ranked.read(newest, (bit<32>)(port ++ meta.queue));
            queue_left.read(gone, (bit<32>)(port ++ meta.queue));
            queue_ranked_us.read(newest_us, (bit<32>)(port ++ meta.queue));
            queue_emptied_us.read(emptied_us, (bit<32>)(port ++ meta.queue));
            gone = gone - newest;
            emptied_us = emptied_us - newest_us - ENQUEUED_AFTER_US;
            if (gone[31:31] == 0 || emptied_us[47:47] == 0 || is_outside == 1) {
                // Nobody has waited there.
                queue_rank.write((bit<32>)(port ++ meta.queue), meta.rank ++ meta.stream);
                queue_rank_us.write((bit<32>)(port ++ meta.queue), now);
                queue_pace.write((bit<32>)(port ++ meta.queue), meta.pace);
            }
            queue_ranked.write((bit<32>)(port ++ meta.queue), meta.sequence);
            queue_ranked_us.write((bit<32>)(port ++ meta.queue), now);
            if (is_outside == 1) {
                queue_until_us.write((bit<32>)(port ++ meta.queue), now + (time_us_t)meta.idle_us);
            }
        }
        if (meta.in_sequence == 1) {
            connection_stays.write((bit<32>)meta.connection, stays);
        }
    }
}
