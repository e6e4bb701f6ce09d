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
            found = meta.epoch - epoch;
        }
    };
    RegisterAction<bit<32>, echelonflow_id_t, bit<32>>(reference_epoch) open_echelonflow = {
        void apply(inout bit<32> epoch, out bit<32> found) {
            epoch = meta.epoch;
            found = 0;
        }
    };

    Register<bit<32>, group_id_t>(GROUPS, 0x80) attained_epoch;
    RegisterAction<bit<32>, group_id_t, bit<32>>(attained_epoch) look_at_group = {
        void apply(inout bit<32> epoch, out bit<32> found) {
            found = meta.epoch - epoch;
        }
    };
    RegisterAction<bit<32>, group_id_t, bit<32>>(attained_epoch) open_group = {
        void apply(inout bit<32> epoch, out bit<32> found) {
            epoch = meta.epoch;
            found = 0;
        }
    };

    action is_equal() {
        meta.epoch_is = EPOCH_EQUAL;
    }

    action is_newer() {
        meta.epoch_is = EPOCH_NEWER;
        meta.reopens = 1;
    }

    action is_newer_later() {
        meta.epoch_is = EPOCH_NEWER;
    }

    action is_stale() {
        meta.epoch_is = EPOCH_STALE;
        meta.is_stale = 1;
        meta.traffic_class = CLASS_STALE;
    }

    // Modulo 256, as in shared/epochs.p4. What opens its job's iteration is resubmitted for that alone.
    @hidden
    table compare {
        key = {
            meta.ahead[7:0]: ternary;
            meta.opens: ternary;
        }
        actions = { is_equal; is_newer; is_newer_later; is_stale; }
        const default_action = is_newer();
        const entries = {
            (0x00 &&& 0xFF, _): is_equal();
            (0xF0 &&& 0xF0, _): is_stale();
            (_, 1): is_newer_later();
        }
    }

    apply {
        if (meta.ranking == Ranking.DEADLINE && meta.pass == PASS_FIRST) {
            meta.ahead = look_at_echelonflow.execute(meta.echelonflow);
        } else if (meta.ranking == Ranking.DEADLINE) {
            meta.ahead = open_echelonflow.execute(meta.echelonflow);
        } else if (meta.ranking == Ranking.ATTAINED && meta.pass == PASS_FIRST) {
            meta.ahead = look_at_group.execute(meta.group);
        } else if (meta.ranking == Ranking.ATTAINED) {
            meta.ahead = open_group.execute(meta.group);
        }
        if (meta.ranking == Ranking.DEADLINE || meta.ranking == Ranking.ATTAINED) {
            compare.apply();
        }
    }
}
