// SPDX-License-Identifier: Apache-2.0
// Ranking `deadline`: by slack against thresholds of the job's own, or, if the profile is in table `period`, by
// tardiness with memory and the bytes left, against others at the port (include/control/order.p4).
//
// The reference time of each EchelonFlow is re-learnt in every iteration: the self-correction of EchelonFlow (HotNets
// '22, section 3.1). The first packet of a newer iteration that arrives opens it, with reference = now - its offset.
// For the head flow (offset 0) that is the definition; for any other it is the estimate that holds if the flow is on
// time. A switch that the head flow does not pass, or that its first packets do not reach, therefore has a usable
// reference, too.

// The slack until a time, in microseconds, biased to an unsigned key that orders as slacks do, and saturated to 32 bits.
control Slack(in time_us_t time, in time_us_t now, out bit<32> key) {
    apply {
        bit<48> slack = time - now;
        bit<48> biased = slack + SLACK_BIAS;
        if (biased[47:32] == 0) {
            key = biased[31:0];
        } else if (slack[47:47] == 1) {
            key = 0;
        } else {
            key = 0xFFFFFFFF;
        }
    }
}

control Deadline(inout headers_t hdr, inout metadata_t meta, in time_us_t now, register<bit<32>> late_us) {
    register<time_us_t>(ECHELONFLOWS) reference_us;
    register<valid_epoch_t>(ECHELONFLOWS) reference_epoch;
    register<bit<16>>(ECHELONFLOWS) memory;
    Slack() slack;
    Slack() slack_until_due;
    bit<64> reciprocal = 0;
    bit<8> shift = 0;
    rank_t zero = 0;
    bit<32> alone_us = 0;
    bit<32> told_age_us = 0;
    bit<16> told_memory = 0;

    // RANK_UNIT over the period in microseconds is factor / 2^shift. `rank_at_zero` is the rank that belongs to the
    // earliest possible packet. Where queues are outside the switch, a packet counts there for `idle`.
    @id(0x01000211)
    action set_period(bit<32> factor, bit<8> factor_shift, rank_t rank_at_zero, bit<32> alone_tardiness_us,
                      bit<32> idle, queue_t lowest, queue_t highest) {
        meta.is_relative = 1;
        reciprocal = (bit<64>)factor;
        shift = factor_shift;
        meta.pace = factor ++ factor_shift;
        zero = rank_at_zero;
        alone_us = alone_tardiness_us;
        meta.idle_us = idle;
        meta.lowest = lowest;
        meta.highest = highest;
    }

    @id(0x02000211)
    table period {
        key = { meta.profile: exact @name("profile"); }
        actions = { set_period; NoAction; }
        default_action = NoAction();
        size = PERIOD_TABLE_SIZE;
    }

    // Once per iteration: three quarters of what was remembered and of the delay of the last iteration.
    action recall(bit<32> index) {
        bit<32> late;
        late_us.read(late, index);
        late_us.write(index, 0);
        bit<64> delay = ((bit<64>)(late |-| alone_us) * reciprocal) >> (shift + MEMORY_SHIFT);
        bit<64> sum = (bit<64>)meta.memory + delay;
        sum = sum - (sum >> 2);
        meta.memory = sum > 0xFFFF ? 16w0xFFFF : sum[15:0];
    }

    apply {
        bit<32> index = (bit<32>)meta.echelonflow;
        valid_epoch_t stored;
        reference_epoch.read(stored, index);
        bool newer = is_newer(stored, meta.epoch);
        if (newer || stored[7:0] == meta.epoch) {
            period.apply();
            if (meta.is_relative == 1) {
                memory.read(meta.memory, index);
                if (hdr.shim.isValid() && hdr.shim.version == SHIM_VERSION) {
                    told_age_us = hdr.shim.age_us;
                    told_memory = hdr.shim.memory;
                }
            }
            if (newer) {
                reference_epoch.write(index, 1w1 ++ meta.epoch);
                meta.reference_us = now - (time_us_t)(told_age_us != 0 ? told_age_us : meta.offset_us);
                reference_us.write(index, meta.reference_us);
                if (meta.is_relative == 1) {
                    recall(index);
                }
            } else {
                reference_us.read(meta.reference_us, index);
                time_us_t told_us = now - (time_us_t)told_age_us;
                time_us_t ahead_us = told_us - meta.reference_us;
                if (told_age_us != 0 && ahead_us[47:47] == 1) {
                    meta.reference_us = told_us;
                    reference_us.write(index, told_us);
                }
            }
            slack.apply(meta.reference_us + (time_us_t)meta.offset_us, now, meta.slack_key);
            meta.level_key = meta.slack_key;
            if (meta.due_us != meta.offset_us) {
                slack_until_due.apply(meta.reference_us + (time_us_t)meta.due_us, now, meta.level_key);
            }
            if (meta.is_relative == 1) {
                if (told_memory > meta.memory) {
                    meta.memory = told_memory;
                }
                memory.write(index, meta.memory);
                bit<64> tardiness = ((bit<64>)(~meta.level_key) * reciprocal) >> shift;
                bit<64> left = ((bit<64>)meta.left_bytes << LEFT_SHIFT_BIAS) >> meta.left_shift;
                if (left > 0xFFFFFFFF) {
                    left = 0xFFFFFFFF;
                }
                left = (left * reciprocal) >> shift;
                meta.rank = tardiness[47:0] + zero + ((rank_t)meta.memory << MEMORY_SHIFT) - left[47:0];
            }
        } else {
            // A straggler of an iteration whose reference is gone: the job has moved on, so no deadline applies.
            meta.ranking = Ranking.NONE;
            meta.traffic_class = CLASS_STALE;
        }
    }
}

// The departure of a packet that is ranked relative to others: writes the switch's knowledge into the shim, and
// remembers the largest tardiness of a flow's last packet in this iteration.
control Departure(inout headers_t hdr, inout metadata_t meta, in time_us_t now, register<bit<32>> late_us) {
    apply {
        if (hdr.shim.isValid()) {
            time_us_t age = now - meta.reference_us;
            hdr.shim.age_us = age > 0xFFFFFFFF ? 32w0xFFFFFFFF : age[31:0] | (bit<32>)(bit<1>)(age == 0);
            hdr.shim.memory = meta.memory;
        }
        if (meta.last == 1) {
            bit<32> index = (bit<32>)meta.echelonflow;
            bit<32> most;
            late_us.read(most, index);
            time_us_t late = now - meta.reference_us - (time_us_t)meta.offset_us;
            if (late[47:47] == 0 && late > (time_us_t)most) {
                late_us.write(index, late > 0xFFFFFFFF ? 32w0xFFFFFFFF : late[31:0]);
            }
        }
    }
}
