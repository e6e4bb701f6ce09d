// SPDX-License-Identifier: Apache-2.0
// Ranking `dscp` (RFC 2474): packets are ranked by the code point that they arrive with.

#if defined(RANKING_VALUE)
    DSCP = 5,
#elif defined(RANKING_ACTION)
    @id(0x01000115) @name(".dscp")
    action dscp(port_t port, mac_t dst_mac, profile_id_t profile) {
        take_path(port, dst_mac);
        meta.ranking = Ranking.DSCP;
        meta.profile = profile;
    }
#elif defined(RANKING_NAME)
            dscp;
#elif defined(RANKING_APPLY)
                else if (meta.ranking == Ranking.DSCP) {
                    meta.level_key = (bit<32>)hdr.ipv4.dscp;
                }
#elif defined(RANKING_KEY_LASTS)
                    || meta.ranking == Ranking.DSCP
#endif
