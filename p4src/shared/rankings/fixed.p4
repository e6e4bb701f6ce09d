// SPDX-License-Identifier: Apache-2.0
// Ranking `fixed`: a queue that never changes.

#if defined(RANKING_VALUE)
    FIXED = 1,
#elif defined(RANKING_ACTION)
    @id(0x01000111) @name(".fixed")
    action fixed(port_t port, mac_t dst_mac, queue_t queue) {
        take_path(port, dst_mac);
        meta.ranking = Ranking.FIXED;
        meta.WANTED = queue;
    }
#elif defined(RANKING_NAME)
            fixed;
#endif
