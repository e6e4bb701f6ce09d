// SPDX-License-Identifier: Apache-2.0
// Ranking `deadline`: by slack against thresholds of the job's own, or, if its entry in table `period` says so, by
// tardiness with memory against the most urgent flow at the port.
//
// Tardiness becomes a rank by a shift: the job's unit is a power of two of ticks times RANK_UNIT, because nothing here
// multiplies by a variable. Everything is kept by EchelonFlow together with the epoch for which it holds, so that a
// packet of another iteration changes nothing. Control Iteration says when an iteration is opened (PASS_OPEN).

struct reference_t {
    int<32> epoch;
    int<32> at;
}

struct memory_t {
    bit<32> epoch;
    bit<32> memory;
}

control Deadline(inout metadata_t meta) {
    Register<reference_t, echelonflow_id_t>(ECHELONFLOWS, {0x80, 0}) reference;
    // The earliest reference that this switch or any sender knows.
    RegisterAction<reference_t, echelonflow_id_t, bit<32>>(reference) hear_reference = {
        void apply(inout reference_t stored, out bit<32> found) {
            if (stored.epoch == (int<32>)meta.epoch && meta.told - stored.at < 0) {
                stored.at = meta.told;
            }
            found = (bit<32>)stored.at;
        }
    };
    RegisterAction<reference_t, echelonflow_id_t, bit<32>>(reference) open_reference = {
        void apply(inout reference_t stored, out bit<32> found) {
            stored.epoch = (int<32>)meta.epoch;
            stored.at = meta.told;
            found = (bit<32>)stored.at;
        }
    };

    action take_begin() {
        meta.begun = meta.now - meta.offset_ticks;
    }

    apply {
        if (meta.pass == PASS_FIRST) {
            meta.bridge.reference = hear_reference.execute(meta.echelonflow);
        } else {
            meta.bridge.reference = open_reference.execute(meta.echelonflow);
        }
        take_begin();
    }
}

control Memory(inout metadata_t meta) {
    // In 1/RANK_UNIT of the job's unit.
    Register<memory_t, echelonflow_id_t>(ECHELONFLOWS, {0x80, 0}) memory;
    RegisterAction<memory_t, echelonflow_id_t, bit<32>>(memory) hear_memory = {
        void apply(inout memory_t stored, out bit<32> found) {
            if (stored.epoch == meta.epoch && meta.told_memory > stored.memory) {
                stored.memory = meta.told_memory;
            }
            found = stored.memory;
        }
    };
    RegisterAction<memory_t, echelonflow_id_t, bit<32>>(memory) open_memory = {
        void apply(inout memory_t stored, out bit<32> found) {
            stored.epoch = meta.epoch;
            stored.memory = meta.told_memory;
            found = stored.memory;
        }
    };

    apply {
        if (meta.pass == PASS_FIRST) {
            meta.bridge.memory = hear_memory.execute(meta.echelonflow);
        } else {
            meta.bridge.memory = open_memory.execute(meta.echelonflow);
        }
    }
}

// The delays of this iteration, from which the memory of the next follows. Applied after control Unit.
control Lateness(inout metadata_t meta) {
    // The largest tardiness of a flow's last packet, less the largest that the job has alone.
    Register<int<32>, echelonflow_id_t>(ECHELONFLOWS, 0) late;
    RegisterAction<int<32>, echelonflow_id_t, bit<32>>(late) raise = {
        void apply(inout int<32> most) {
            if (meta.alone > most) {
                most = meta.alone;
            }
        }
    };
    RegisterAction<int<32>, echelonflow_id_t, bit<32>>(late) read = {
        void apply(inout int<32> most, out bit<32> found) {
            found = (bit<32>)most;
        }
    };
    RegisterAction<int<32>, echelonflow_id_t, bit<32>>(late) clear = {
        void apply(inout int<32> most) {
            most = 0;
        }
    };

    bit<32> delay = 0;

    // The second pass takes three quarters of it.
    action add_memory() {
        delay = delay + meta.bridge.memory;
    }

    action tell_memory() {
        @in_hash { meta.resubmit.memory = delay[15 + MEMORY_SHIFT:MEMORY_SHIFT]; }
    }

    apply {
        if (meta.ranking == Ranking.DEADLINE && meta.bridge.is_relative == 1) {
            if (meta.pass != PASS_FIRST) {
                clear.execute(meta.echelonflow);
            } else if (meta.epoch_is == EPOCH_NEWER) {
                delay = read.execute(meta.echelonflow);
            } else if (meta.last == 1 && meta.epoch_is == EPOCH_EQUAL) {
                raise.execute(meta.echelonflow);
            }
        }
        add_memory();
        tell_memory();
    }
}

// The rank of the most urgent flow at each port. Applied after control Unit.
//
// A flow that ended or pauses must not hold the port for ever, and there is no stage for a time. So every packet of
// another flow takes a little off the rank, and the most urgent flow restores it with its next packet. When that has
// ended, flows that waited behind it keep their order: their ranks grow with time until the next is the most urgent.
control Top(inout metadata_t meta) {
    Register<int<32>, port_t>(PORTS, NO_RANK) top_rank;
    // By how much the packet is behind, which is nothing for the most urgent.
    RegisterAction<int<32>, port_t, bit<32>>(top_rank) compete = {
        void apply(inout int<32> top, out bit<32> behind) {
            behind = 0;
            if (meta.raw - top >= 0) {
                top = meta.raw;
            } else {
                behind = (bit<32>)(top - meta.raw);
                top = top - TOP_DECAY;
            }
        }
    };

    // Ranks that are not compared with others pass the same stateful ALU, which makes them at least zero.
    RegisterAction<int<32>, port_t, bit<32>>(top_rank) clamp = {
        void apply(inout int<32> top, out bit<32> key) {
            key = 0;
            if (meta.raw >= 0) {
                key = (bit<32>)meta.raw;
            }
        }
    };

    apply {
        if (meta.ranking == Ranking.WINDOW || (meta.ranking == Ranking.DEADLINE && meta.bridge.is_relative == 0)) {
            meta.level_key = clamp.execute(meta.egress_port);
        } else if (meta.ranking == Ranking.DEADLINE && meta.epoch_is == EPOCH_EQUAL) {
            meta.level_key = compete.execute(meta.egress_port);
        }
    }
}
