// SPDX-License-Identifier: Apache-2.0
// From a key to a queue: a ranking makes a key of what it knows about a packet, and a range table per profile (usually
// one per job) maps the key to a queue. The thresholds are policy. A range has at most 20 bits: a key that is beyond
// them means the profile's lowest queue, and a ranking sees to it that no key is below zero.

control Level(inout metadata_t meta) {
    @id(0x01000201)
    action set_queue(queue_t queue) {
        meta.bridge.wanted = queue;
    }

    @id(0x02000201)
    table level {
        key = {
            meta.profile: exact @name("profile");
            meta.level_key[LEVEL_KEY_BITS - 1:0]: range @name("key");
        }
        actions = { set_queue; NoAction; }
        const default_action = NoAction();
        size = LEVEL_TABLE_SIZE;
    }

    apply {
        if (meta.ranking != Ranking.NONE && meta.ranking != Ranking.FIXED && meta.is_stale == 0
            && meta.level_key[31:LEVEL_KEY_BITS] == 0) {
            level.apply();
        }
    }
}
