// SPDX-License-Identifier: Apache-2.0
// Slack = reference + offset - now, in microseconds, saturated to 32 bits and biased to an unsigned key that orders
// as slacks do. A range table per profile (usually one per job) maps it to a queue: the thresholds are policy. Each
// entry also tells its own lower end, and so for how long the rank will hold while the packet waits.

control Slack(inout metadata_t meta, in time_us_t now) {
    @id(0x01000201)
    action set_queue(queue_t queue, bit<32> lowest_slack) {
        meta.wanted = queue;
        meta.rank_holds_us = meta.slack_key - lowest_slack;
    }

    @id(0x02000201)
    table slack_to_queue {
        key = {
            meta.profile: exact @name("profile");
            meta.slack_key: range @name("slack");
        }
        actions = { set_queue; NoAction; }
        default_action = NoAction();
        size = LEVEL_TABLE_SIZE;
    }

    apply {
        bit<48> slack = meta.reference_us + (time_us_t)meta.offset_us - now;
        bit<17> top = slack[47:31];
        if (top == 0 || top == 0x1FFFF) {
            meta.slack_key = slack[31:0] ^ SLACK_BIAS;
        } else if (slack[47:47] == 1) {
            meta.slack_key = 0;
        } else {
            meta.slack_key = 0xFFFFFFFF;
        }
        slack_to_queue.apply();
    }
}
