// SPDX-License-Identifier: Apache-2.0
// The reference time of each EchelonFlow, re-learnt in every iteration: the self-correction of EchelonFlow (HotNets
// '22, section 3.1). Epochs are compared modulo 256: up to 16 behind is a straggler, anything else that differs is a newer
// iteration, or a job that was started anew and counts from one again.
//
// The first packet of a newer iteration that arrives opens it, with reference = now - its own offset. For the head
// flow (offset 0) that is the definition; for any other it is the estimate that holds if the flow is on time, so that
// a switch which the head flow does not pass, or a lost head, still leaves a usable reference.

control Reference(inout metadata_t meta, in time_us_t now) {
    register<time_us_t>(ECHELONFLOWS) reference_us;
    register<valid_epoch_t>(ECHELONFLOWS) reference_epoch;

    apply {
        bit<32> index = (bit<32>)meta.echelonflow;
        valid_epoch_t stored;
        reference_epoch.read(stored, index);
        bit<8> ahead = meta.epoch - stored[7:0];
        if (stored == 0 || (ahead != 0 && ahead < STRAGGLER_FROM)) {
            meta.reference_us = now - (time_us_t)meta.offset_us;
            reference_us.write(index, meta.reference_us);
            reference_epoch.write(index, 1w1 ++ meta.epoch);
        } else if (ahead == 0) {
            reference_us.read(meta.reference_us, index);
        } else {
            // A straggler of an iteration whose reference is gone: the job has moved on, so no deadline applies.
            meta.ranking = Ranking.NONE;
            meta.traffic_class = CLASS_STALE;
        }
    }
}
