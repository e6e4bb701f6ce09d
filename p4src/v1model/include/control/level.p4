// SPDX-License-Identifier: Apache-2.0
// From a key to a queue: a ranking makes a 32-bit key of what it knows about a packet, and a range table per profile
// (usually one per job) maps the key to a queue. The thresholds are policy.
//
// Most keys are times that run out while the packet waits. Each entry therefore tells its own lower end, from which
// follows for how long the rank holds. A ranking with other keys says otherwise after this.

control Level(inout metadata_t meta) {
    @id(0x01000201)
    action set_queue(queue_t queue, bit<32> lowest) {
        meta.wanted = queue;
        meta.rank_holds_us = meta.level_key - lowest;
    }

    @id(0x02000201)
    table level {
        key = {
            meta.profile: exact @name("profile");
            meta.level_key: range @name("key");
        }
        actions = { set_queue; NoAction; }
        default_action = NoAction();
        size = LEVEL_TABLE_SIZE;
    }

    apply {
        level.apply();
    }
}
