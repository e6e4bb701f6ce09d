// SPDX-License-Identifier: Apache-2.0
// Ranking `short`: packets are ranked by their length.

#if defined(RANKING_VALUE)
    SHORT = 6,
#elif defined(RANKING_ACTION)
    @id(0x01000116) @name(".short")
    action short(port_t port, mac_t dst_mac, profile_id_t profile) {
        take_path(port, dst_mac);
        meta.ranking = Ranking.SHORT;
        meta.profile = profile;
    }
#elif defined(RANKING_NAME)
            short;
#elif defined(RANKING_APPLY)
                else if (meta.ranking == Ranking.SHORT) {
                    // To do: the length of the packet.
                    meta.level_key = 0;
                }
#elif defined(RANKING_KEY_LASTS)
                    || meta.ranking == Ranking.SHORT
#endif
