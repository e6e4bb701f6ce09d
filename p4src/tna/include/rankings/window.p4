// SPDX-License-Identifier: Apache-2.0
// Ranking `window` (CASSINI, NSDI '24): the time left in the group's period. The register holds the end of the running
// period. A packet that comes then or later moves it on by one period, so after a silence of a few periods as many
// packets find no time left. After a silence of 2^SILENT_SHIFT periods the packet is resubmitted, and periods begin
// anew.

control Window(inout metadata_t meta) {
    Register<int<32>, group_id_t>(GROUPS) window_end;
    RegisterAction<int<32>, group_id_t, bit<32>>(window_end) move_on = {
        void apply(inout int<32> end, out bit<32> found) {
            if (end - (int<32>)meta.now <= 0) {
                end = end + (int<32>)meta.offset_ticks;
            }
            found = (bit<32>)end;
        }
    };
    // As if a period ended here, since a stateful ALU cannot add two fields: the next packet moves it on.
    RegisterAction<int<32>, group_id_t, bit<32>>(window_end) begin = {
        void apply(inout int<32> end, out bit<32> found) {
            end = (int<32>)meta.now;
            found = (bit<32>)end;
        }
    };

    // Intermediate results are in fields of ranking `deadline`, because containers are few.
    apply {
        if (meta.pass == PASS_OPEN) {
            meta.begun = begin.execute(meta.group);
        } else {
            meta.begun = move_on.execute(meta.group);
        }
    }
}
