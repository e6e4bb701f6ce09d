// SPDX-License-Identifier: Apache-2.0
// Promotion without reordering. Every packet that enters a queue of a port takes the queue's next sequence number;
// egress records the number of the packet that left last (a queue is a FIFO). A flow changes its queue only when the
// packet that it sent last has left, so no packet overtakes an earlier one of its own flow. While it waits for that,
// DRAIN in the shim (set here, and in egress on packets whose rank went out of date in the queue) asks the sender to let
// its window run empty once.
//
// Sequence numbers and not times: two packets of one microsecond would be taken for each other.

control Promotion(inout headers_t hdr, inout metadata_t meta, in port_t port,
                  register<bit<32>> queue_left) {
    register<bit<32>>(PORT_QUEUES) queue_entered;
    register<valid_epoch_t>(FLOWS) flow_epoch;
    register<queue_t>(FLOWS) flow_queue;
    register<bit<32>>(FLOWS) flow_sequence;

    apply {
        bit<32> index = (bit<32>)meta.flow;
        meta.queue = meta.wanted;
        if (meta.ranking != Ranking.NONE) {
            valid_epoch_t epoch;
            flow_epoch.read(epoch, index);
            bit<8> ahead = meta.epoch - epoch[7:0];
            if (epoch != 0 && ahead >= STRAGGLER_FROM) {
                // Of an iteration that is over: it neither starts the flow anew nor moves it.
                meta.ranking = Ranking.NONE;
            } else if (epoch != 0 && ahead == 0) {
                queue_t current;
                flow_queue.read(current, index);
                if (current != meta.wanted) {
                    bit<32> mine;
                    bit<32> left;
                    flow_sequence.read(mine, index);
                    queue_left.read(left, (bit<32>)(port ++ current));
                    bit<32> behind = left - mine;
                    if (behind[31:31] == 1) {
                        meta.queue = current;
                        if (hdr.shim.isValid()) {
                            hdr.shim.flags = hdr.shim.flags | SHIM_FLAG_DRAIN;
                        }
                    }
                }
            } else {
                // A flow starts: its queue starts anew.
                flow_epoch.write(index, 1w1 ++ meta.epoch);
                meta.first = 1;
            }
        }
        queue_entered.read(meta.sequence, (bit<32>)(port ++ meta.queue));
        meta.sequence = meta.sequence + 1;
        meta.sequenced = 1;
        queue_entered.write((bit<32>)(port ++ meta.queue), meta.sequence);
        if (meta.ranking != Ranking.NONE) {
            flow_queue.write(index, meta.queue);
            flow_sequence.write(index, meta.sequence);
        }
    }
}
