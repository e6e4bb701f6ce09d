/* SPDX-License-Identifier: Apache-2.0
 *
 * Numbers of the aggregation protocol (docs/aggregation-protocol.md). Preprocessor only, as constants.h.
 */
#ifndef ECHELON_AGGREGATION_H
#define ECHELON_AGGREGATION_H

#define AGGREGATION_UDP_PORT 0xEF11
#define AGGREGATION_VERSION 1
#define AGGREGATION_BYTES 16

/* Kinds of packets. */
#define AGGREGATION_CONTRIBUTION 1
#define AGGREGATION_RESULT 2
#define AGGREGATION_REQUEST 3
#define AGGREGATION_ANSWER 4

/* Flags of packets. */
#define AGGREGATION_OVERFLOW 1
#define AGGREGATION_MARKED 2
#define AGGREGATION_AGAIN 4
#define AGGREGATION_EMPTY 8

/* Flags of places, beside OVERFLOW and MARKED: all contributions are in; the sum has values. */
#define PLACE_COMPLETE 0x10
#define PLACE_VALUES 0x20

/* Who may take the place of an incomplete sum of another tree: the place's own tree, nobody, whoever is due earlier. */
#define TAKE_OWN 0
#define TAKE_FIRST 1
#define TAKE_DEADLINE 2

/* Index of the counter "aggregated": what became of a contribution or result. */
#define AGGREGATED_KEPT 0
#define AGGREGATED_COMPLETE 1
#define AGGREGATED_DUPLICATE 2
#define AGGREGATED_SENT_AGAIN 3
#define AGGREGATED_PASSED 4
#define AGGREGATED_FLUSHED 5
#define AGGREGATED_HANDED_OVER 6
#define AGGREGATED_STALE 7
#define AGGREGATED_FORGED 8
#define AGGREGATED_UNKNOWN 9
#define AGGREGATED_RESULTS 10
#define AGGREGATED_MALFORMED 11
#define AGGREGATED_REASONS 12

#endif
