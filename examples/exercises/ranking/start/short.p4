// SPDX-License-Identifier: Apache-2.0
// Ranking `short`: the branch in control EchelonIngress that makes the key of table `level`.

                else if (meta.ranking == Ranking.SHORT) {
                    // To do: the length of the packet.
                    meta.level_key = 0;
                }
