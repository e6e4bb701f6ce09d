// SPDX-License-Identifier: Apache-2.0
// Does the packet belong to the iteration that its EchelonFlow, or its group of ranking `attained`, is in?
//
// A register is accessed once per pass, and what a newer iteration begins with depends on what other registers hold.
// So the first pass only looks: the packet that opens an iteration is resubmitted, and its second pass writes. A packet
// that opens an iteration of its connection's job is in its second pass already, and opens at once.

control Iteration(inout metadata_t meta) {
    // No job begins with the epochs from 0x70 to 0x80, which would be stale beside this.
    Register<bit<32>, echelonflow_id_t>(ECHELONFLOWS, 0x80) reference_epoch;
    RegisterAction<bit<32>, echelonflow_id_t, bit<32>>(reference_epoch) look_at_echelonflow = {
        void apply(inout bit<32> epoch, out bit<32> found) {
            found = epoch;
        }
    };
    RegisterAction<bit<32>, echelonflow_id_t, bit<32>>(reference_epoch) open_echelonflow = {
        void apply(inout bit<32> epoch, out bit<32> found) {
            epoch = meta.epoch;
            found = epoch;
        }
    };

    Register<bit<32>, group_id_t>(GROUPS, 0x80) attained_epoch;
    RegisterAction<bit<32>, group_id_t, bit<32>>(attained_epoch) look_at_group = {
        void apply(inout bit<32> epoch, out bit<32> found) {
            found = epoch;
        }
    };
    RegisterAction<bit<32>, group_id_t, bit<32>>(attained_epoch) open_group = {
        void apply(inout bit<32> epoch, out bit<32> found) {
            epoch = meta.epoch;
            found = epoch;
        }
    };

    action take_ahead() {
        meta.ahead = meta.epoch - meta.stored_epoch;
    }

    apply {
        if (meta.ranking == Ranking.DEADLINE) {
            if (meta.pass == PASS_FIRST) {
                meta.stored_epoch = look_at_echelonflow.execute(meta.echelonflow);
            } else {
                meta.stored_epoch = open_echelonflow.execute(meta.echelonflow);
            }
        } else {
            if (meta.pass == PASS_FIRST) {
                meta.stored_epoch = look_at_group.execute(meta.group);
            } else {
                meta.stored_epoch = open_group.execute(meta.group);
            }
        }
        // Modulo 256, as in shared/epochs.p4.
        take_ahead();
        if (meta.ahead[7:0] == 0) {
            meta.epoch_is = EPOCH_EQUAL;
        } else if (meta.ahead[7:4] == 0xF) {
            meta.epoch_is = EPOCH_STALE;
        } else {
            meta.epoch_is = EPOCH_NEWER;
        }
    }
}
