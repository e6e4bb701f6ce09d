// SPDX-License-Identifier: Apache-2.0
// The headers of all programs, and values by halves.
#ifndef ECHELON_AGGREGATION_HEADERS_P4
#define ECHELON_AGGREGATION_HEADERS_P4

#include "shared/headers.p4"
#include "../shared/headers.p4"

struct headers_t {
    ethernet_t    ethernet;
    ipv4_h        ipv4;
    udp_t         udp;
    shim_t        shim;
    aggregation_t aggregation;
    // The first half, while `half` is the second one.
    values_t      first_half;
    values_t      half;
}

#endif
