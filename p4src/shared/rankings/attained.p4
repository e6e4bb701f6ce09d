// SPDX-License-Identifier: Apache-2.0
// Ranking `attained`, the part without state: packets of a group are ranked by the bytes that it has sent.

#if defined(RANKING_VALUE)
    ATTAINED = 3,
#elif defined(RANKING_ACTION)
    @id(0x01000113) @name(".attained")
    action attained(port_t port, mac_t dst_mac, group_id_t group, profile_id_t profile) {
        take_path(port, dst_mac);
        meta.ranking = Ranking.ATTAINED;
        meta.group = group;
        meta.profile = profile;
    }
#elif defined(RANKING_NAME)
            attained;
#elif defined(RANKING_KEY_LASTS)
                    || meta.ranking == Ranking.ATTAINED
#endif
