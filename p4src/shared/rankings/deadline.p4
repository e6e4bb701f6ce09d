// SPDX-License-Identifier: Apache-2.0
// Ranking `deadline`, the part without state: packets are ranked by the reference time of their EchelonFlow.

#if defined(RANKING_VALUE)
    DEADLINE = 2,
#elif defined(RANKING_ACTION)
    @id(0x01000112) @name(".deadline")
    action deadline(port_t port, mac_t dst_mac, echelonflow_id_t echelonflow, profile_id_t profile,
                    bit<32> DURATION(offset), bit<32> DUE, bit<LEFT_SHIFT_BITS> left_shift) {
        take_path(port, dst_mac);
        meta.ranking = Ranking.DEADLINE;
        meta.echelonflow = echelonflow;
        meta.profile = profile;
        meta.DURATION(offset) = DURATION(offset);
        meta.DUE = DUE;
        meta.left_shift = left_shift;
    }
#elif defined(RANKING_NAME)
            deadline;
#endif
