// SPDX-License-Identifier: Apache-2.0
// Headers of the aggregation protocol, byte by byte in docs/aggregation-protocol.md. An architecture defines
// EACH_VALUE(DO), which expands DO(n) for the number of each value of a packet.
#ifndef ECHELON_AGGREGATION_P4
#define ECHELON_AGGREGATION_P4

#include "aggregation.h"

header aggregation_t {
    bit<4>  version;
    bit<4>  kind;
    bit<8>  flags;
    bit<16> session;
    bit<16> tree;
    bit<8>  exponent;
    bit<8>  next_exponent;
    bit<32> block;
    bit<32> workers;
}

#define VALUE_FIELD(n) bit<32> v##n;
header values_t {
    EACH_VALUE(VALUE_FIELD)
}

#endif
