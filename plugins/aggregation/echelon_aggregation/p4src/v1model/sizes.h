/* SPDX-License-Identifier: Apache-2.0
 *
 * Sizes of aggregation in the v1model program.
 */
#ifndef AGGREGATION_SIZES_H
#define AGGREGATION_SIZES_H

#define PLACES 4096
#define AGGREGATION_TREES 1024
#define AGGREGATION_MEMBERS 4096
#define VALUE_BYTES 128
#define VALUES_UDP_BYTES 172
#define EACH_VALUE(DO) \
    DO(0) DO(1) DO(2) DO(3) DO(4) DO(5) DO(6) DO(7) DO(8) DO(9) DO(10) DO(11) DO(12) DO(13) DO(14) DO(15) \
    DO(16) DO(17) DO(18) DO(19) DO(20) DO(21) DO(22) DO(23) DO(24) DO(25) DO(26) DO(27) DO(28) DO(29) DO(30) DO(31)

#endif
