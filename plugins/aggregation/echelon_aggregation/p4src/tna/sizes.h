/* SPDX-License-Identifier: Apache-2.0
 *
 * Sizes of aggregation in the TNA program.
 */
#ifndef AGGREGATION_SIZES_H
#define AGGREGATION_SIZES_H

/* A place has a cell for each of 32 workers in one register. */
#define PLACES 2048
#define PLACE_BITS 11
#define CELLS 65536
#define CELL_BITS 16
#define AGGREGATION_TREES 1024
#define AGGREGATION_MEMBERS 4096
#define VALUE_BYTES 256
#define VALUES_UDP_BYTES 300
#define EMPTY_UDP_BYTES 44
#define EACH_WORKER(DO) \
    DO(0) DO(1) DO(2) DO(3) DO(4) DO(5) DO(6) DO(7) DO(8) DO(9) DO(10) DO(11) DO(12) DO(13) DO(14) DO(15) \
    DO(16) DO(17) DO(18) DO(19) DO(20) DO(21) DO(22) DO(23) DO(24) DO(25) DO(26) DO(27) DO(28) DO(29) DO(30) DO(31)
/* A packet has twice as many values. Each is in a stage of ingress that has a stateful ALU left. */
#define HALF_BITS 1024
#define EACH_OF_HALF(DO) \
    DO(0, 0) DO(1, 0) DO(2, 0) DO(3, 0) DO(4, 1) DO(5, 1) DO(6, 1) DO(7, 1) DO(8, 2) DO(9, 2) DO(10, 2) DO(11, 2) \
    DO(12, 3) DO(13, 3) DO(14, 3) DO(15, 4) DO(16, 4) DO(17, 5) DO(18, 5) DO(19, 5) DO(20, 6) DO(21, 6) DO(22, 10) \
    DO(23, 7) DO(24, 7) DO(25, 7) DO(26, 8) DO(27, 8) DO(28, 8) DO(29, 8) DO(30, 9) DO(31, 11)
#define EACH_VALUE EACH_WORKER

#endif
