/* SPDX-License-Identifier: Apache-2.0
 *
 * Sizes of the program of a switch of fixed function.
 */
#ifndef ECHELON_SIZES_DSCP_H
#define ECHELON_SIZES_DSCP_H

#define QUEUES 8
/* One slot per egress port (9 bits) and queue (3 bits). */
#define PORT_QUEUES 4096
#define ROUTE_TABLE_SIZE 4096
#define STATION_TABLE_SIZE 4096

#endif
