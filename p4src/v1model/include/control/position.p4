// SPDX-License-Identifier: Apache-2.0
// Where in its iteration does a packet of a connection stand? Control Classifier asks, and keeps the registers.

// How far from the newest byte of its connection does the packet begin, and how many new bytes does it bring? A packet
// that was sent again brings none. A connection that has other ports than the one before, or sequence numbers far
// from those before, is another one: all that it sends is new.
control Sequence(inout metadata_t meta, register<bytes_sent_t> connection_sent) {
    apply {
        bytes_sent_t sent;
        connection_sent.read(sent, (bit<32>)meta.sequence_of);
        bit<32> end = meta.seq + meta.payload_bytes;
        bit<32> grown = end - sent[31:0];
        if (sent[63:32] == meta.ends && (grown[31:24] == 0 || grown[31:24] == 0xFF)) {
            meta.ahead = meta.seq - sent[31:0];
            if (grown[31:31] == 1 || grown == 0) {
                meta.sent_again = 1;
                meta.new_bytes = 0;
                end = sent[31:0];
            } else {
                meta.new_bytes = grown;
            }
        }
        connection_sent.write((bit<32>)meta.sequence_of, meta.ends ++ end);
    }
}

// A new iteration starts on a connection that may open it (is_head) after an idle gap, and only when it has seen
// what the last iteration had to bring: a retransmission or a compute stall alone opens nothing.
// A connection is idle while none of its packets arrives or leaves: one whose packets wait in a low queue is not.
// Connections that did not open it learn of it by job_epoch and count from zero again.
//
// Where whole_bytes says what an iteration brings, each connection goes by its own bytes instead, and needs no silence:
// its next iteration begins behind that many. A gap that is as near to such a border as the last or first 5 % is the
// border, so that bytes that the plan does not know do not add up. Until an iteration has passed without a gap, nobody
// knows where the border is, and each gap counts as one. A connection that is two iterations behind its job begins
// anew after a gap.
control Position(inout metadata_t meta, in time_us_t now, register<valid_epoch_t> job_epoch,
                 register<valid_epoch_t> connection_epoch, register<bit<32>> connection_bytes,
                 register<bit<1>> connection_whole, register<time_us_t> connection_last_us,
                 register<time_us_t> stream_left_us) {
    apply {
        valid_epoch_t epoch;
        valid_epoch_t mine;
        bit<32> bytes;
        time_us_t last_us;
        job_epoch.read(epoch, (bit<32>)meta.job);
        connection_epoch.read(mine, (bit<32>)meta.connection);
        connection_bytes.read(bytes, (bit<32>)meta.connection);
        connection_last_us.read(last_us, (bit<32>)meta.connection);
        time_us_t left_us;
        stream_left_us.read(left_us, (bit<32>)(2w1 ++ meta.connection));
        if (left_us > last_us && left_us <= now) {
            last_us = left_us;
        }

        bit<1> idle = (bit<1>)(now - last_us > (time_us_t)meta.gap_us);
        bit<1> by_bytes = (bit<1>)(meta.whole_bytes != 0 && mine != 0 && epoch != 0);

        // By the connection's own bytes.
        if (by_bytes == 1 && meta.sent_again == 0) {
            bit<1> whole;
            bit<1> begins = 0;
            connection_whole.read(whole, (bit<32>)meta.connection);
            if (bytes >= meta.whole_bytes) {
                bytes = bytes - meta.whole_bytes;
                begins = 1;
            } else if (idle == 1 && bytes >= meta.head_bytes) {
                bytes = 0;
                begins = 1;
            }
            if (idle == 1 && (whole == 0 || bytes <= meta.whole_bytes - meta.head_bytes)) {
                bytes = 0;
            }
            bit<8> behind = epoch[7:0] - mine[7:0];

            // The connection that is ahead of its job takes the job along.
            if (begins == 1) {
                mine = 1w1 ++ (mine[7:0] + 1);
                connection_whole.write((bit<32>)meta.connection, 1);
                if (behind == 0 || behind[7:7] == 1) {
                    epoch = mine;
                    job_epoch.write((bit<32>)meta.job, epoch);
                }
            }

            // Two iterations behind: it begins anew.
            if (idle == 1 && behind > 1 && behind[7:7] == 0) {
                mine = epoch;
                bytes = 0;
                begins = 1;
            }
            if (begins == 1) {
                meta.reopened = idle;
                connection_epoch.write((bit<32>)meta.connection, mine);
            }
        }

        // By silence: a head opens the job's next iteration.
        if (epoch == 0 || (meta.whole_bytes == 0 && meta.is_head == 1 && mine == epoch && bytes >= meta.head_bytes
                           && meta.sent_again == 0 && idle == 1)) {
            epoch = 1w1 ++ (epoch[7:0] + 1);
            job_epoch.write((bit<32>)meta.job, epoch);
        }

        // Another connection opened it.
        if (mine != epoch && by_bytes == 0 && meta.sent_again == 0) {
            meta.reopened = 1;
            bytes = 0;
            mine = epoch;
            connection_epoch.write((bit<32>)meta.connection, epoch);
        }

        meta.epoch = mine[7:0];
        meta.position = bytes + meta.ahead;
        if (meta.ahead[31:31] == 1 && meta.position > bytes) {
            meta.position = 0;
        }
        connection_bytes.write((bit<32>)meta.connection, bytes + meta.new_bytes);
        connection_last_us.write((bit<32>)meta.connection, now);
    }
}
