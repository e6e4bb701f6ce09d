// SPDX-License-Identifier: Apache-2.0
// Queues in the order of ranks. A packet that is ranked relative to others goes between the queue of those that are more
// urgent and that of those that are less: the queues of a port have no meaning of their own, only an order.
//
// A queue is as urgent as the ranked packet that leaves it next, while any waits. No program sees that one; the one that
// left last stands for it, or, until one has left, the first that came. The one that came last would not do: ranks rise
// with what a flow has sent, so that a window that waits would count as more urgent than what it begins with, and two
// streams of about the same rank would fall below each other in turns, down to the lowest queue, and share that.
//
// Ranks grow with time, each at the pace of its job: a rank that was given earlier is compared as it is now, or whoever has
// waited for long would be taken for less urgent than who has just come. The packet's own stream is no other. Control
// Promotion keeps what waits in its order: a stream takes the queue that is wanted here only when none of its packets
// waits, and otherwise stays where it is, or falls to below who has become more urgent (`ceiling`).
//
// One register for each fact, with a slot for each port and queue: eight times three reads of single words, and five more
// for queues that hold something, which cost BMv2 and softswitch next to nothing. A wide word for a whole port would be
// written as a whole by each packet, and more than 64 bits are slow in both. A Tofino reads one slot of a register for each
// packet, so it would need a register for each queue of a port.
//
// No program sees that a queue had no room for a packet. If that was the last one for the queue, its number never leaves,
// and the queue would count as held by whose rank grows for ever. So a queue that has been empty since does not count.
// Between its time of arrival and its queue, a packet needs a while in a switch whose ingress and egress run beside each
// other (BMv2), on a busy machine milliseconds: a queue that was emptied in that time says nothing.

const time_us_t ENQUEUED_AFTER_US = 20000;

control Order(inout metadata_t meta, in port_t port, in time_us_t now, register<bit<32>> queue_left,
              register<ranked_t> queue_rank, register<time_us_t> queue_rank_us, register<pace_t> queue_pace,
              register<bit<32>> queue_ranked, register<time_us_t> queue_ranked_us,
              register<time_us_t> queue_until_us, register<time_us_t> queue_emptied_us) {
    bit<1> is_above = 0;
    bit<1> is_below = 0;
    queue_t above = 0;
    queue_t below = 0;
    // By how much the packets there are more urgent; not positive below.
    rank_t above_by = 0;
    rank_t below_by = 0;
    bit<32> left;
    bit<32> last;
    time_us_t until_us;
    time_us_t still_us;
    time_us_t emptied_us;
    ranked_t other;
    rank_t by;
    time_us_t since_us;
    pace_t pace;
    bit<64> growth;

    // From the highest queue down: the lowest one of who is more urgent, and the highest one of the others. Sequence
    // numbers compare by the sign of their difference: after 2^31 packets of other traffic, an empty queue would count as
    // held until a ranked packet has left it.
#define LOOK_AT(queue) \
        queue_left.read(left, (bit<32>)(port ++ queue)); \
        queue_ranked.read(last, (bit<32>)(port ++ queue)); \
        queue_until_us.read(until_us, (bit<32>)(port ++ queue)); \
        left = left - last; \
        still_us = until_us - now; \
        if (left[31:31] == 1 || (until_us != 0 && still_us[47:47] == 0)) { \
            queue_rank.read(other, (bit<32>)(port ++ queue)); \
            queue_ranked_us.read(since_us, (bit<32>)(port ++ queue)); \
            queue_emptied_us.read(emptied_us, (bit<32>)(port ++ queue)); \
            emptied_us = emptied_us - since_us - ENQUEUED_AFTER_US; \
            if (other[15:0] != meta.stream \
                && (emptied_us[47:47] == 1 || (until_us != 0 && still_us[47:47] == 0))) { \
                queue_rank_us.read(since_us, (bit<32>)(port ++ queue)); \
                queue_pace.read(pace, (bit<32>)(port ++ queue)); \
                since_us = now - since_us; \
                growth = ((bit<64>)since_us[31:0] * (bit<64>)pace[39:8]) >> pace[7:0]; \
                by = other[63:16] + growth[47:0] - meta.rank; \
                if (by[47:47] == 0 && by != 0) { \
                    is_above = 1; \
                    above = queue; \
                    above_by = by; \
                } else if (is_below == 0) { \
                    is_below = 1; \
                    below = queue; \
                    below_by = by; \
                } \
            } \
        }

    apply {
        LOOK_AT(3w7)
        LOOK_AT(3w6)
        LOOK_AT(3w5)
        LOOK_AT(3w4)
        LOOK_AT(3w3)
        LOOK_AT(3w2)
        LOOK_AT(3w1)
        LOOK_AT(3w0)

        meta.ceiling = meta.highest;
        if (is_above == 1) {
            meta.ceiling = above > meta.lowest ? above - 1 : meta.lowest;
        }

        if (is_above == 0 && is_below == 0) {
            // Room for as many that come above as below.
            meta.wanted = meta.lowest + ((meta.highest - meta.lowest) >> 1);
        } else if (is_above == 0) {
            meta.wanted = below < meta.highest ? below + 1 : meta.highest;
        } else if (is_below == 0) {
            meta.wanted = meta.ceiling;
        } else if (above > below && above - below > 1) {
            bit<4> sum = (bit<4>)above + (bit<4>)below + 1;
            meta.wanted = sum[3:1];
        } else if (above > below) {
            // No queue is between them: to the nearer one.
            by = above_by + below_by;
            meta.wanted = by[47:47] == 1 ? above : below;
        } else {
            meta.wanted = above;
        }

        // Other profiles may have other queues.
        if (meta.wanted < meta.lowest) {
            meta.wanted = meta.lowest;
        }
        if (meta.wanted > meta.highest) {
            meta.wanted = meta.highest;
        }
        if (meta.ceiling > meta.highest) {
            meta.ceiling = meta.highest;
        }
    }
}
