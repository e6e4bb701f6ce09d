// SPDX-License-Identifier: Apache-2.0
// Ranking `short`: the branch in control EchelonIngress that makes the key of table `level`.

                else if (meta.ranking == Ranking.SHORT) {
                    meta.level_key = (bit<32>)hdr.ipv4.total_len;
                }
