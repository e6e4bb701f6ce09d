// SPDX-License-Identifier: Apache-2.0
// Ranking `window`, the part without state: packets are ranked by the time left in a period of their group.

#if defined(RANKING_VALUE)
    WINDOW = 4,
#elif defined(RANKING_ACTION)
    @id(0x01000114) @name(".window")
    action window(port_t port, mac_t dst_mac, group_id_t group, profile_id_t profile, bit<32> DURATION(period)) {
        take_path(port, dst_mac);
        meta.ranking = Ranking.WINDOW;
        meta.group = group;
        meta.profile = profile;
        meta.PERIOD = DURATION(period);
    }
#elif defined(RANKING_NAME)
            window;
#endif
