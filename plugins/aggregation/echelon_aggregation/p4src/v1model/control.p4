// SPDX-License-Identifier: Apache-2.0
// Aggregation: adds up what the workers of a job send, block by block, and sends the sum to all of them. The rules are in
// docs/aggregation-protocol.md, whose cases have the same numbers here.
//
// A place of the memory is one index of all registers. Ingress alone reads and writes them.

control Aggregation(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata,
                    in time_us_t now) {
    counter(AGGREGATED_REASONS, CounterType.packets_and_bytes) aggregated;
    // The owner: tree, session and block. 0 is nobody's, since trees count from 1.
    register<bit<64>>(PLACES) place_owner;
    register<bit<32>>(PLACES) place_workers;
    // Next exponent, exponent, epoch of the shim, flags.
    register<bit<32>>(PLACES) place_state;
    register<time_us_t>(PLACES) place_due_us;
#define PLACE_SUM(n) register<bit<32>>(PLACES) place_sum_##n;
    EACH_VALUE(PLACE_SUM)

    // What the tree's entries say.
    bit<32> child_workers = 0;
    bit<1> is_child = 0;
    bit<1> sends_results = 0;
    bit<1> is_parent = 0;
    bit<1> is_aggregated = 0;
    bit<32> first_place = 0;
    bit<32> place_mask = 0;
    bit<32> place_start = 0;
    bit<32> all_workers = 0;
    bit<2> may_take = 0;
    bit<1> root = 0;
    port_t to_parent = 0;
    bit<16> children = 0;
    bit<16> sum_flow = 0;
    bit<16> result_flow = 0;
    // What the place held.
    bit<64> owner = 0;
    bit<32> workers = 0;
    bit<32> state = 0;
    time_us_t due_us = 0;
    // Where that sum goes if it loses the place: it is a run's that goes on.
    bit<1> is_held = 0;
    ipv4_t holder_src = 0;
    bit<16> holder_src_port = 0;
    ipv4_t holder_dst = 0;
    mac_t holder_mac = 0;
    port_t holder_port = 0;
    bit<16> holder_job = 0;
    bit<16> holder_flow = 0;

    @id(0x01000801)
    action from_child(bit<32> workers_behind) {
        is_child = 1;
        child_workers = workers_behind;
    }

    @id(0x01000802)
    action from_parent() {
        is_parent = 1;
        sends_results = 1;
    }

    // A child's port that also leads to the fallback.
    @id(0x01000803)
    action from_fallback(bit<32> workers_behind) {
        from_child(workers_behind);
        sends_results = 1;
    }

    @id(0x02000801)
    table aggregation_member {
        key = {
            hdr.aggregation.tree: exact @name("tree");
            standard_metadata.ingress_port: exact @name("port");
        }
        actions = { from_child; from_parent; from_fallback; NoAction; }
        default_action = NoAction();
        size = AGGREGATION_MEMBERS;
    }

    // The places of a tree are first .. first + mask; block b is at first + ((b + start) & mask).
    @id(0x01000804)
    action aggregate(bit<32> first, bit<32> mask, bit<32> start, bit<32> all, bit<2> take, bit<1> is_root,
                     port_t parent_port, bit<16> group, bit<16> up_flow, bit<16> down_flow) {
        is_aggregated = 1;
        first_place = first;
        place_mask = mask;
        place_start = start;
        all_workers = all;
        may_take = take;
        root = is_root;
        to_parent = parent_port;
        children = group;
        sum_flow = up_flow;
        result_flow = down_flow;
    }

    // The switch has no memory for the tree: packets go on as they are.
    @id(0x01000805)
    action pass_on() {
    }

    @id(0x02000802)
    table aggregation_tree {
        key = {
            hdr.aggregation.tree: exact @name("tree");
            hdr.aggregation.session: exact @name("session");
        }
        actions = { aggregate; pass_on; NoAction; }
        default_action = NoAction();
        size = AGGREGATION_TREES;
    }

    // The sum of a tree that loses its place goes to its fallback, as a packet of its job.
    @id(0x01000806)
    action hand_over(ipv4_t src, bit<16> src_port, ipv4_t dst, mac_t dst_mac, port_t port, bit<16> job,
                     bit<16> flow) {
        is_held = 1;
        holder_src = src;
        holder_src_port = src_port;
        holder_dst = dst;
        holder_mac = dst_mac;
        holder_port = port;
        holder_job = job;
        holder_flow = flow;
    }

    action send_to_holder() {
        hdr.ipv4.src = holder_src;
        hdr.udp.src_port = holder_src_port;
        hdr.ipv4.dst = holder_dst;
        hdr.ethernet.dst = holder_mac;
        standard_metadata.egress_spec = holder_port;
        meta.egress_port = holder_port;
        hdr.shim.job = holder_job;
        hdr.shim.flow = holder_flow;
    }

    @id(0x02000803)
    table aggregation_holder {
        key = {
            owner[63:48]: exact @name("tree");
            owner[47:32]: exact @name("session");
        }
        actions = { hand_over; NoAction; }
        default_action = NoAction();
        size = AGGREGATION_TREES;
    }

    action end(bit<32> reason) {
        aggregated.count(reason);
        meta.ended = 1;
        mark_to_drop(standard_metadata);
    }

    // -- the values of the packet and of the place ------------------------------------------------------------------

    action with_values() {
        hdr.values.setValid();
        hdr.aggregation.flags = hdr.aggregation.flags & ~(bit<8>)AGGREGATION_EMPTY;
        hdr.udp.length = 8 + SHIM_BYTES + AGGREGATION_BYTES + VALUE_BYTES;
        hdr.ipv4.total_len = 20 + 8 + SHIM_BYTES + AGGREGATION_BYTES + VALUE_BYTES;
    }

    action without_values() {
        hdr.values.setInvalid();
        hdr.aggregation.flags = hdr.aggregation.flags | AGGREGATION_EMPTY;
        hdr.udp.length = 8 + SHIM_BYTES + AGGREGATION_BYTES;
        hdr.ipv4.total_len = 20 + 8 + SHIM_BYTES + AGGREGATION_BYTES;
    }

    action write_values(bit<32> place) {
#define WRITE_VALUE(n) place_sum_##n.write(place, hdr.values.v##n);
        EACH_VALUE(WRITE_VALUE)
    }

    action read_values(bit<32> place) {
#define READ_VALUE(n) place_sum_##n.read(hdr.values.v##n, place);
        EACH_VALUE(READ_VALUE)
    }

    // The sum is in the place and in the packet; `state` tells of an addition that left the range of 32 bits: both
    // addends had the other sign.
    action add_values(bit<32> place) {
        bit<32> was;
        bit<32> sum;
        bit<32> overflow = 0;
#define ADD_VALUE(n) place_sum_##n.read(was, place); \
        sum = was + hdr.values.v##n; \
        overflow = overflow | ((was ^ sum) & (hdr.values.v##n ^ sum)); \
        place_sum_##n.write(place, sum); \
        hdr.values.v##n = sum;
        EACH_VALUE(ADD_VALUE)
        state = state | (bit<32>)overflow[31:31];
    }

    action swap_values(bit<32> place) {
        bit<32> was;
#define SWAP_VALUE(n) place_sum_##n.read(was, place); \
        place_sum_##n.write(place, hdr.values.v##n); \
        hdr.values.v##n = was;
        EACH_VALUE(SWAP_VALUE)
    }

    // The packet has what the place has.
    action load() {
        hdr.aggregation.workers = workers;
        hdr.aggregation.next_exponent = state[31:24];
        hdr.aggregation.exponent = state[23:16];
        hdr.aggregation.flags = (hdr.aggregation.flags & (AGGREGATION_AGAIN | AGGREGATION_EMPTY))
            | (state[7:0] & (AGGREGATION_OVERFLOW | AGGREGATION_MARKED));
    }

    // -- where the packet goes ------------------------------------------------------------------------------------------

    // The complete sum goes on: up, or as result to all children, or back to the one who asked.
    action send_up() {
        standard_metadata.egress_spec = to_parent;
        meta.egress_port = to_parent;
        hdr.shim.flow = sum_flow;
    }

    action as_result() {
        hdr.aggregation.kind = AGGREGATION_RESULT;
        hdr.aggregation.flags = hdr.aggregation.flags & ~(bit<8>)AGGREGATION_AGAIN;
        hdr.udp.src_port = AGGREGATION_UDP_PORT;
        hdr.shim.flow = result_flow;
    }

    action send_to_children() {
        hdr.ipv4.src = hdr.ipv4.dst;
        standard_metadata.mcast_grp = children;
    }

    action send_back() {
        ipv4_t fallback = hdr.ipv4.dst;
        hdr.ipv4.dst = hdr.ipv4.src;
        hdr.ipv4.src = fallback;
        mac_t sender = hdr.ethernet.src;
        hdr.ethernet.src = hdr.ethernet.dst;
        hdr.ethernet.dst = sender;
        hdr.udp.dst_port = hdr.udp.src_port;
        standard_metadata.egress_spec = standard_metadata.ingress_port;
        meta.egress_port = standard_metadata.ingress_port;
    }

    action read_place(bit<32> place) {
        place_owner.read(owner, place);
        place_workers.read(workers, place);
        place_state.read(state, place);
        place_due_us.read(due_us, place);
    }

    action free_place(bit<32> place) {
        place_owner.write(place, 0);
    }

    apply {
        aggregation_member.apply();
        bool has_form = hdr.aggregation.version == AGGREGATION_VERSION
            && hdr.aggregation.kind >= AGGREGATION_CONTRIBUTION && hdr.aggregation.kind <= AGGREGATION_ANSWER
            && (hdr.values.isValid()
            || (hdr.aggregation.flags & AGGREGATION_EMPTY != 0 && hdr.udp.length == 8 + SHIM_BYTES + AGGREGATION_BYTES));
        if (!has_form) {
            end(AGGREGATED_MALFORMED);
        } else if (!aggregation_tree.apply().hit) {
            end(AGGREGATED_UNKNOWN);
        } else if (hdr.aggregation.kind == AGGREGATION_RESULT) {
            if (sends_results == 0) {
                end(AGGREGATED_FORGED);
            } else if (is_aggregated == 1) {
                aggregated.count(AGGREGATED_RESULTS);
                hdr.shim.flow = result_flow;
                if (is_parent == 1 || root == 1) {
                    standard_metadata.mcast_grp = children;
                } else {
                    standard_metadata.egress_spec = to_parent;
                    meta.egress_port = to_parent;
                }
            }
        } else if (hdr.aggregation.kind == AGGREGATION_REQUEST) {
            if (sends_results == 0) {
                end(AGGREGATED_FORGED);
            }
        } else if (is_parent == 0 && (is_child == 0 || hdr.aggregation.workers & ~child_workers != 0
                                      || hdr.aggregation.workers == 0)) {
            end(AGGREGATED_FORGED);
        } else if (is_parent == 0 && is_aggregated == 1 && hdr.aggregation.kind == AGGREGATION_CONTRIBUTION) {
            bit<32> place = first_place + ((hdr.aggregation.block + place_start) & place_mask);
            bit<64> mine = hdr.aggregation.tree ++ hdr.aggregation.session ++ hdr.aggregation.block;
            bit<32> theirs = hdr.aggregation.workers;
            bit<1> again = hdr.aggregation.flags[2:2];
            bit<1> takes = 0;
            bit<1> sum_goes_on = 0;
            read_place(place);
            bit<1> complete = state[4:4];
            if (hdr.ipv4.ecn == ECN_CONGESTION_EXPERIENCED) {
                hdr.aggregation.flags = hdr.aggregation.flags | AGGREGATION_MARKED;
            }
            if (owner == mine) {
                bool absent = theirs & workers == 0;
                if (absent) {
                    // Case 1.
                    workers = workers | theirs;
                    if (hdr.aggregation.next_exponent > state[31:24]) {
                        state[31:24] = hdr.aggregation.next_exponent;
                    }
                    state[7:0] = state[7:0] | (hdr.aggregation.flags & (AGGREGATION_OVERFLOW | AGGREGATION_MARKED));
                    if (hdr.values.isValid()) {
                        if (state[5:5] == 1) {
                            add_values(place);
                        } else {
                            state = state | PLACE_VALUES;
                            write_values(place);
                        }
                    }
                    if (workers == all_workers) {
                        state = state | PLACE_COMPLETE;
                    }
                    place_workers.write(place, workers);
                    place_state.write(place, state);
                }
                if (!absent && theirs & ~workers != 0) {
                    // Case 3.
                    aggregated.count(AGGREGATED_PASSED);
                } else if (state[4:4] == 0 && again == 0) {
                    if (absent) {
                        end(AGGREGATED_KEPT);
                    } else {
                        end(AGGREGATED_DUPLICATE);
                    }
                } else {
                    // A complete sum, or the sum so far.
                    if (state[5:5] == 1) {
                        if (!hdr.values.isValid()) {
                            with_values();
                        }
                        read_values(place);
                    } else {
                        without_values();
                    }
                    load();
                    if (state[4:4] == 0) {
                        aggregated.count(AGGREGATED_FLUSHED);
                        free_place(place);
                    } else {
                        sum_goes_on = 1;
                        if (complete == 1) {
                            aggregated.count(AGGREGATED_SENT_AGAIN);
                            if (again == 1 && root == 0) {
                                // The next one gets through alone.
                                free_place(place);
                            }
                        } else {
                            aggregated.count(AGGREGATED_COMPLETE);
                        }
                    }
                }
            } else if (again == 1) {
                // Case 4.
                aggregated.count(AGGREGATED_PASSED);
            } else if (owner[63:32] == mine[63:32]) {
                bit<32> ahead = mine[31:0] - owner[31:0];
                if (ahead[31:31] == 1) {
                    // Case 6.
                    end(AGGREGATED_STALE);
                } else {
                    takes = 1;
                }
            } else if (owner == 0 || complete == 1 || owner[63:48] == mine[63:48]) {
                // Case 5.
                takes = 1;
            } else if (!aggregation_holder.apply().hit) {
                // Case 5: of a run that has ended.
                takes = 1;
            } else if (theirs == all_workers) {
                // Case 7: a sum already.
                aggregated.count(AGGREGATED_COMPLETE);
                sum_goes_on = 1;
            } else if (may_take == TAKE_OWN
                       || (may_take == TAKE_DEADLINE && meta.aggregation_due_us < due_us)) {
                takes = 1;
            } else {
                aggregated.count(AGGREGATED_PASSED);
            }
            if (takes == 1) {
                bit<32> fresh = hdr.aggregation.next_exponent ++ hdr.aggregation.exponent ++ hdr.shim.epoch
                    ++ (hdr.aggregation.flags & (AGGREGATION_OVERFLOW | AGGREGATION_MARKED));
                if (theirs == all_workers) {
                    fresh = fresh | PLACE_COMPLETE;
                }
                if (hdr.values.isValid()) {
                    fresh = fresh | PLACE_VALUES;
                }
                place_owner.write(place, mine);
                place_workers.write(place, theirs);
                place_state.write(place, fresh);
                place_due_us.write(place, meta.aggregation_due_us);
                if (is_held == 1 && may_take == TAKE_DEADLINE) {
                    send_to_holder();
                    if (state[5:5] == 0) {
                        if (hdr.values.isValid()) {
                            write_values(place);
                        }
                        without_values();
                    } else if (hdr.values.isValid()) {
                        swap_values(place);
                    } else {
                        with_values();
                        read_values(place);
                    }
                    hdr.aggregation.tree = owner[63:48];
                    hdr.aggregation.session = owner[47:32];
                    hdr.aggregation.block = owner[31:0];
                    hdr.shim.epoch = state[15:8];
                    hdr.shim.age_us = 0;
                    hdr.shim.memory = 0;
                    load();
                    aggregated.count(AGGREGATED_HANDED_OVER);
                } else {
                    if (hdr.values.isValid()) {
                        write_values(place);
                    }
                    if (theirs != all_workers) {
                        end(AGGREGATED_KEPT);
                    } else {
                        aggregated.count(AGGREGATED_COMPLETE);
                        sum_goes_on = 1;
                    }
                }
            }
            if (sum_goes_on == 1) {
                if (root == 0) {
                    send_up();
                } else {
                    if (complete == 1 && owner == mine) {
                        send_back();
                    } else {
                        send_to_children();
                    }
                    as_result();
                }
            }
        }
        hdr.udp.checksum = 0;
    }
}

// A copy of a result for a child that is a worker gets the worker's address; copies for switches go as they are.
control AggregationCopy(inout headers_t hdr, in standard_metadata_t standard_metadata) {
    @id(0x01000807)
    action deliver(mac_t dst_mac, ipv4_t dst, bit<16> udp_port) {
        hdr.ethernet.dst = dst_mac;
        hdr.ipv4.dst = dst;
        hdr.udp.dst_port = udp_port;
    }

    @id(0x02000804)
    table aggregation_copy {
        key = {
            hdr.aggregation.tree: exact @name("tree");
            standard_metadata.egress_rid: exact @name("copy");
        }
        actions = { deliver; NoAction; }
        default_action = NoAction();
        size = AGGREGATION_MEMBERS;
    }

    apply {
        if (hdr.aggregation.kind == AGGREGATION_RESULT && standard_metadata.egress_rid != 0) {
            aggregation_copy.apply();
        }
    }
}
