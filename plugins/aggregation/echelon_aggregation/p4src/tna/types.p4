// SPDX-License-Identifier: Apache-2.0
#ifndef ECHELON_AGGREGATION_TYPES_P4
#define ECHELON_AGGREGATION_TYPES_P4

typedef bit<QUEUE_BITS> queue_t;
typedef bit<9>          port_t;
typedef bit<PLACE_BITS> place_t;
typedef bit<CELL_BITS>  cell_t;

// The port whose packets come back.
const port_t LOOP_PORT = 68;

// Why a packet comes back, or 0.
const bit<8> STEP_FIRST = 0;
// The first half of its values is added, and it comes back; then the second half, and it ends.
const bit<8> STEP_KEEP = 1;
const bit<8> STEP_KEPT = 2;
// It gets the first half of the sum, and comes back; then the second half, and leaves.
const bit<8> STEP_LOAD = 3;
const bit<8> STEP_FINISH = 4;

// What is done with the first half of the values, of the packet and of the place.
const bit<8> VALUES_STAY = 0;
// The sum has those of the packet, too, and the packet has the sum.
const bit<8> VALUES_ADD = 1;
// The sum is what the packet has.
const bit<8> VALUES_WRITE = 2;
// The packet has the sum instead of what it had, or of nothing.
const bit<8> VALUES_READ = 3;
const bit<8> VALUES_MAKE = 4;
// The packet has nothing.
const bit<8> VALUES_LOSE = 5;
// The same with the second half.
const bit<8> OTHERS_ADD = 9;
const bit<8> OTHERS_WRITE = 10;
const bit<8> OTHERS_READ = 11;
const bit<8> OTHERS_MAKE = 12;

// Where the sum goes, and whether the place is free then.
const bit<8> TO_NOBODY = 0;
const bit<8> TO_PARENT = 1;
const bit<8> TO_CHILDREN = 2;
const bit<8> TO_SENDER = 3;
const bit<8> TO_FALLBACK = 4;
const bit<8> FREES = 8;

// What is found out about a packet one after the other.
enum bit<2> Form {
    OTHER = 0,
    MALFORMED = 1,
    EMPTY = 2,
    VALUES = 3
}

enum bit<2> Member {
    STRANGER = 0,
    CHILD = 1,
    FALLBACK = 2,
    PARENT = 3
}

enum bit<2> Known {
    UNKNOWN = 0,
    PASSED_ON = 1,
    AGGREGATED = 2
}

// The packet comes from a child that is one worker; from one of a child's workers; from all workers of a child.
enum bit<2> Part {
    OTHER = 0,
    WORKER = 1,
    ONE_OF_MANY = 2,
    ALL_OF_MANY = 3
}

enum bit<8> Act {
    FORWARD = 0,
    FORGED = 1,
    UNKNOWN = 2,
    MALFORMED = 3,
    RESULT_DOWN = 4,
    RESULT_UP = 5,
    PASS = 6,
    CONTRIBUTE = 7,
    AGAIN = 8,
    FINISH = 9,
    RELEASE = 10,
    KEEP = 11,
    LOAD = 12,
    KEPT = 13
}

enum bit<8> Op {
    NONE = 0,
    PASS = 1,
    STALE = 2,
    BUSY = 3,
    TAKE = 4,
    ADD = 5,
    REPEAT = 6
}

enum bit<4> Way {
    ROUTE = 0,
    DROP = 1,
    LOOP = 2,
    PARENT = 3,
    CHILDREN = 4,
    SENDER = 5
}

// From ingress to egress, and back by the port that loops.
header bridge_h {
    bit<8>  step;
    bit<8>  values;
    bit<8>  to;
    queue_t wanted;
    bit<16> place;
    bit<16> came_from;
}

struct metadata_t {
    bridge_h        bridge;
    // It has not come back.
    bit<1>          is_first;
    bool            bad_checksum;
    bit<1>          drop;
    bit<2>          drop_reason;
    bit<2>          traffic_class;
    // Where does it go?
    port_t          egress_port;
    bit<1>          forwarded;
    bit<1>          flooded;
    Way             way;

    // What the tree's entries say.
    Form            form;
    Member          member;
    Known           known;
    bit<32>         child_workers;
    bit<32>         foreign_workers;
    bit<32>         missing_workers;
    bit<32>         place_mask;
    bit<32>         block_place;
    bit<32>         first_place;
    bit<32>         all_workers;
    bit<2>          may_take;
    bit<1>          root;
    port_t          to_parent;
    bit<16>         children;
    bit<16>         sum_flow;
    bit<16>         result_flow;
    // The number of the worker, if it is one, and of the first of the child's workers.
    bit<1>          is_one;
    bit<8>          worker;
    bit<8>          first_worker;
    Part            part;
    bit<32>         run;

    // What the place says: see control Place.
    Act             act;
    bit<4>          lock;
    bit<4>          owner_is;
    bit<32>         owner_block;
    bit<1>          is_block;
    bit<32>         generation;
    bit<4>          child_did;
    bit<4>          worker_did;
    Op              op;
    bit<32>         rest;
    bit<1>          is_all;
    bit<32>         awaited;
    bit<4>          complete;
    bit<4>          lacks;
    bit<8>          state;
    // Whether the packet has values.
    bit<8>          adds;
    bit<8>          place_state;
    bit<8>          sum_state;
    port_t          to_sender;
    bit<8>          next_exponent;
}

struct egress_metadata_t {
    bridge_h bridge;
    queue_t  queue;
    // Without options, which are not parsed.
    bool     is_plain_ipv4;
    bit<32>  threshold;
    bit<32>  depth;
    bit<32>  room;
    bit<1>   has_threshold;
}

#endif
