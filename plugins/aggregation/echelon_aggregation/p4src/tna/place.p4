// SPDX-License-Identifier: Apache-2.0
// What a place holds, its values apart: who owns it, which workers are in the sum, flags and exponents.
//
// Registers come in this order, each in a stage of its own, since what is done to one depends on those before:
//
//   lock         the tree that has an incomplete sum there, where memory is shared
//   owner        run (tree and session) and block; twice, since an action outputs one thing
//   generation   how often the place was taken
//   child        for each place and child that is a switch: the generation in which it contributed, and how
//   worker       for each place and worker: the generation in which it contributed
//   workers      the bitmap; twice
//   pending      the packets on their way round whose values are not all in the sum
//   state        flags; whether there are values; the next exponent
//
// A stateful ALU cannot test bits of what it holds, and so not whether a bitmap has a worker. The generation in a cell of
// the worker's own says that, and needs no clearing.

struct owner_t {
    int<32> run;
    int<32> block;
}

struct contributed_t {
    bit<32> generation;
    // Of a child that is a switch: all of its workers at once, or one by one.
    bit<32> at_once;
}

// What an action outputs about its two comparisons.
const bit<4> NEITHER = 1;
const bit<4> ONLY_FIRST = 2;
const bit<4> ONLY_SECOND = 4;
const bit<4> BOTH = 8;

control Place(inout headers_t hdr, inout metadata_t meta) {
    Register<bit<16>, place_t>(PLACES) place_lock;
    RegisterAction<bit<16>, place_t, bit<4>>(place_lock) take_lock = {
        void apply(inout bit<16> owner, out bit<4> found) {
            found = this.predicate(owner == 0, owner == hdr.aggregation.tree);
            if (owner == 0) {
                owner = hdr.aggregation.tree;
            }
        }
    };
    RegisterAction<bit<16>, place_t, bit<4>>(place_lock) unlock = {
        void apply(inout bit<16> owner) {
            if (owner == hdr.aggregation.tree) {
                owner = 0;
            }
        }
    };

    // An older block of the same run gives way, and any other run; who was there is told by the second one.
    Register<owner_t, place_t>(PLACES) place_owner;
    RegisterAction<owner_t, place_t, bit<4>>(place_owner) owner_look = {
        void apply(inout owner_t owner, out bit<4> found) {
            found = this.predicate(owner.run != (int<32>)meta.run, owner.block != (int<32>)hdr.aggregation.block);
        }
    };
    RegisterAction<owner_t, place_t, bit<4>>(place_owner) owner_free = {
        void apply(inout owner_t owner, out bit<4> found) {
            found = this.predicate(owner.run != (int<32>)meta.run, owner.block != (int<32>)hdr.aggregation.block);
            if (owner.run == (int<32>)meta.run && owner.block == (int<32>)hdr.aggregation.block) {
                owner.run = 0;
            }
        }
    };
    RegisterAction<owner_t, place_t, bit<4>>(place_owner) owner_take = {
        void apply(inout owner_t owner, out bit<4> found) {
            found = this.predicate(owner.run != (int<32>)meta.run, owner.block - (int<32>)hdr.aggregation.block < 0);
            if (owner.run != (int<32>)meta.run || owner.block - (int<32>)hdr.aggregation.block < 0) {
                owner.run = (int<32>)meta.run;
                owner.block = (int<32>)hdr.aggregation.block;
            }
        }
    };
    Register<owner_t, place_t>(PLACES) place_block;
    RegisterAction<owner_t, place_t, bit<32>>(place_block) block_free = {
        void apply(inout owner_t owner) {
            if (owner.run == (int<32>)meta.run && owner.block == (int<32>)hdr.aggregation.block) {
                owner.run = 0;
            }
        }
    };
    RegisterAction<owner_t, place_t, bit<32>>(place_block) block_take = {
        void apply(inout owner_t owner, out bit<32> found) {
            found = (bit<32>)owner.block;
            if (owner.run != (int<32>)meta.run || owner.block - (int<32>)hdr.aggregation.block < 0) {
                owner.run = (int<32>)meta.run;
                owner.block = (int<32>)hdr.aggregation.block;
            }
        }
    };

    action do_owner_take() { meta.owner_is = owner_take.execute(meta.block_place[PLACE_BITS - 1:0]); }
    action do_owner_look() { meta.owner_is = owner_look.execute(meta.block_place[PLACE_BITS - 1:0]); }
    action do_owner_free() { meta.owner_is = owner_free.execute(meta.block_place[PLACE_BITS - 1:0]); }
    action do_block_take() { meta.owner_block = block_take.execute(meta.block_place[PLACE_BITS - 1:0]); }
    action do_block_free() { block_free.execute(meta.block_place[PLACE_BITS - 1:0]); }

    @hidden
    table owner {
        key = {
            meta.act: ternary;
            meta.lock: ternary;
        }
        actions = { do_owner_take; do_owner_look; do_owner_free; NoAction; }
        const default_action = NoAction();
        const entries = {
            (Act.CONTRIBUTE, NEITHER): NoAction();
            (Act.CONTRIBUTE, _): do_owner_take();
            (Act.AGAIN, _): do_owner_look();
            (Act.RELEASE, _): do_owner_free();
        }
    }

    @hidden
    table owner_block {
        key = {
            meta.act: ternary;
            meta.lock: ternary;
        }
        actions = { do_block_take; do_block_free; NoAction; }
        const default_action = NoAction();
        const entries = {
            (Act.CONTRIBUTE, NEITHER): NoAction();
            (Act.CONTRIBUTE, _): do_block_take();
            (Act.RELEASE, _): do_block_free();
        }
    }

    Register<bit<32>, place_t>(PLACES) place_generation;
    RegisterAction<bit<32>, place_t, bit<32>>(place_generation) next_generation = {
        void apply(inout bit<32> cell, out bit<32> found) {
            cell = cell + 1;
            found = cell;
        }
    };
    RegisterAction<bit<32>, place_t, bit<32>>(place_generation) this_generation = {
        void apply(inout bit<32> cell, out bit<32> found) {
            found = cell;
        }
    };

    action do_next_generation() { meta.generation = next_generation.execute(meta.block_place[PLACE_BITS - 1:0]); }
    action do_this_generation() { meta.generation = this_generation.execute(meta.block_place[PLACE_BITS - 1:0]); }

    @hidden
    table generation {
        key = {
            meta.act: exact;
            meta.owner_is: exact;
        }
        actions = { do_next_generation; do_this_generation; NoAction; }
        const default_action = NoAction();
        const entries = {
            (Act.CONTRIBUTE, NEITHER): do_this_generation();
            (Act.CONTRIBUTE, ONLY_FIRST): do_next_generation();
            (Act.CONTRIBUTE, ONLY_SECOND): do_next_generation();
            (Act.CONTRIBUTE, BOTH): do_next_generation();
            (Act.AGAIN, NEITHER): do_this_generation();
        }
    }

    Register<contributed_t, cell_t>(CELLS) child_contributed;
    RegisterAction<contributed_t, cell_t, bit<4>>(child_contributed) contribute_one = {
        void apply(inout contributed_t cell, out bit<4> found) {
            found = this.predicate(cell.generation != meta.generation, cell.at_once != 0);
            if (cell.generation != meta.generation) {
                cell.generation = meta.generation;
                cell.at_once = 0;
            }
        }
    };
    RegisterAction<contributed_t, cell_t, bit<4>>(child_contributed) contribute_all = {
        void apply(inout contributed_t cell, out bit<4> found) {
            found = this.predicate(cell.generation != meta.generation, cell.at_once != 0);
            if (cell.generation != meta.generation) {
                cell.generation = meta.generation;
                cell.at_once = 1;
            }
        }
    };

#define CHILD_CELL meta.block_place[PLACE_BITS - 1:0] ++ meta.first_worker[4:0]
#define WORKER_CELL meta.block_place[PLACE_BITS - 1:0] ++ meta.worker[4:0]
    action do_contribute_one() { meta.child_did = contribute_one.execute(CHILD_CELL); }
    action do_contribute_all() { meta.child_did = contribute_all.execute(CHILD_CELL); }

    @hidden
    table child {
        key = {
            meta.act: ternary;
            meta.owner_is: ternary;
            meta.is_block: ternary;
            meta.part: ternary;
        }
        actions = { do_contribute_one; do_contribute_all; NoAction; }
        const default_action = NoAction();
        const entries = {
            (Act.CONTRIBUTE, 0, _, _): NoAction();
            (Act.CONTRIBUTE, NEITHER, 0, _): NoAction();
            (Act.CONTRIBUTE, _, _, Part.ONE_OF_MANY): do_contribute_one();
            (Act.CONTRIBUTE, _, _, Part.ALL_OF_MANY): do_contribute_all();
            (Act.AGAIN, NEITHER, _, Part.ONE_OF_MANY): do_contribute_one();
            (Act.AGAIN, NEITHER, _, Part.ALL_OF_MANY): do_contribute_all();
        }
    }

    Register<bit<32>, cell_t>(CELLS) worker_contributed;
    RegisterAction<bit<32>, cell_t, bit<4>>(worker_contributed) contribute = {
        void apply(inout bit<32> cell, out bit<4> found) {
            found = this.predicate(cell != meta.generation);
            cell = meta.generation;
        }
    };

    action do_contribute() { meta.worker_did = contribute.execute(WORKER_CELL); }

    @hidden
    table worker {
        key = {
            meta.act: ternary;
            meta.owner_is: ternary;
            meta.is_block: ternary;
            meta.part: ternary;
            meta.child_did: ternary;
        }
        actions = { do_contribute; NoAction; }
        const default_action = NoAction();
        const entries = {
            (Act.CONTRIBUTE, 0, _, _, _): NoAction();
            (Act.CONTRIBUTE, NEITHER, 0, _, _): NoAction();
            (Act.CONTRIBUTE, _, _, Part.WORKER, _): do_contribute();
            (Act.CONTRIBUTE, _, _, Part.ONE_OF_MANY, ONLY_SECOND): NoAction();
            (Act.CONTRIBUTE, _, _, Part.ONE_OF_MANY, _): do_contribute();
            (Act.AGAIN, NEITHER, _, Part.WORKER, _): do_contribute();
            (Act.AGAIN, NEITHER, _, Part.ONE_OF_MANY, ONLY_SECOND): NoAction();
            (Act.AGAIN, NEITHER, _, Part.ONE_OF_MANY, _): do_contribute();
        }
    }

    // What is done with the sum.
    action pass() { meta.op = Op.PASS; }
    action is_stale() { meta.op = Op.STALE; }
    action is_busy() { meta.op = Op.BUSY; }
    action take() { meta.op = Op.TAKE; }
    action add() {
        meta.op = Op.ADD;
        meta.awaited = meta.rest;
    }
    action repeat() {
        meta.op = Op.REPEAT;
        meta.awaited = meta.all_workers;
        meta.state = 0;
    }

    @hidden
    table operation {
        key = {
            meta.act: ternary;
            meta.lock: ternary;
            meta.owner_is: ternary;
            meta.is_block: ternary;
            meta.part: ternary;
            meta.child_did: ternary;
            meta.worker_did: ternary;
        }
        actions = { pass; is_stale; is_busy; take; add; repeat; NoAction; }
        const default_action = NoAction();
        const entries = {
            (Act.PASS, _, _, _, _, _, _): pass();
            (Act.CONTRIBUTE, NEITHER, _, _, _, _, _): is_busy();
            (Act.CONTRIBUTE, _, ONLY_FIRST, _, _, _, _): take();
            (Act.CONTRIBUTE, _, ONLY_SECOND, _, _, _, _): take();
            (Act.CONTRIBUTE, _, BOTH, _, _, _, _): take();
            (Act.CONTRIBUTE, _, _, 0, _, _, _): is_stale();
            (Act.AGAIN, _, ONLY_FIRST, _, _, _, _): pass();
            (Act.AGAIN, _, ONLY_SECOND, _, _, _, _): pass();
            (Act.AGAIN, _, BOTH, _, _, _, _): pass();
            (Act.CONTRIBUTE, _, _, _, Part.ALL_OF_MANY, NEITHER, _): pass();
            (Act.CONTRIBUTE, _, _, _, Part.ALL_OF_MANY, ONLY_SECOND, _): repeat();
            (Act.CONTRIBUTE, _, _, _, Part.ALL_OF_MANY, _, _): add();
            (Act.CONTRIBUTE, _, _, _, Part.ONE_OF_MANY, ONLY_SECOND, _): repeat();
            (Act.CONTRIBUTE, _, _, _, _, _, NEITHER): repeat();
            (Act.CONTRIBUTE, _, _, _, _, _, _): add();
            (Act.AGAIN, _, _, _, Part.ALL_OF_MANY, NEITHER, _): pass();
            (Act.AGAIN, _, _, _, Part.ALL_OF_MANY, ONLY_SECOND, _): repeat();
            (Act.AGAIN, _, _, _, Part.ALL_OF_MANY, _, _): add();
            (Act.AGAIN, _, _, _, Part.ONE_OF_MANY, ONLY_SECOND, _): repeat();
            (Act.AGAIN, _, _, _, _, _, NEITHER): repeat();
            (Act.AGAIN, _, _, _, _, _, _): add();
        }
    }

    Register<bit<32>, place_t>(PLACES) place_workers;
    RegisterAction<bit<32>, place_t, bit<32>>(place_workers) workers_put = {
        void apply(inout bit<32> bitmap, out bit<32> found) {
            bitmap = hdr.aggregation.workers;
            found = bitmap;
        }
    };
    RegisterAction<bit<32>, place_t, bit<32>>(place_workers) workers_add = {
        void apply(inout bit<32> bitmap, out bit<32> found) {
            bitmap = bitmap | hdr.aggregation.workers;
            found = bitmap;
        }
    };
    RegisterAction<bit<32>, place_t, bit<32>>(place_workers) workers_read = {
        void apply(inout bit<32> bitmap, out bit<32> found) {
            found = bitmap;
        }
    };
    // The same: does the sum have its last worker now, or already?
    Register<bit<32>, place_t>(PLACES) place_present;
    RegisterAction<bit<32>, place_t, bit<4>>(place_present) present_put = {
        void apply(inout bit<32> bitmap) {
            bitmap = hdr.aggregation.workers;
        }
    };
    RegisterAction<bit<32>, place_t, bit<4>>(place_present) present_add = {
        void apply(inout bit<32> bitmap, out bit<4> found) {
            found = this.predicate(bitmap != meta.awaited);
            bitmap = bitmap | hdr.aggregation.workers;
        }
    };
    RegisterAction<bit<32>, place_t, bit<4>>(place_present) present_read = {
        void apply(inout bit<32> bitmap, out bit<4> found) {
            found = this.predicate(bitmap != meta.awaited);
        }
    };
    // A packet that the loop loses stays pending, and so the sum that lacks its values does not leave.
    Register<bit<8>, place_t>(PLACES) place_pending;
    RegisterAction<bit<8>, place_t, bit<4>>(place_pending) pending_put = {
        void apply(inout bit<8> cell) {
            cell = meta.adds;
        }
    };
    RegisterAction<bit<8>, place_t, bit<4>>(place_pending) pending_add = {
        void apply(inout bit<8> cell) {
            cell = cell + meta.adds;
        }
    };
    RegisterAction<bit<8>, place_t, bit<4>>(place_pending) pending_end = {
        void apply(inout bit<8> cell, out bit<4> found) {
            found = this.predicate(cell != 1);
            cell = cell - 1;
        }
    };
    RegisterAction<bit<8>, place_t, bit<4>>(place_pending) pending_look = {
        void apply(inout bit<8> cell, out bit<4> found) {
            found = this.predicate(cell != 0);
        }
    };
    Register<bit<8>, place_t>(PLACES) place_state;
    RegisterAction<bit<8>, place_t, bit<8>>(place_state) state_put = {
        void apply(inout bit<8> cell, out bit<8> found) {
            cell = meta.state;
            found = cell;
        }
    };
    RegisterAction<bit<8>, place_t, bit<8>>(place_state) state_add = {
        void apply(inout bit<8> cell, out bit<8> found) {
            cell = cell | meta.state;
            found = cell;
        }
    };
    // Does the sum have values? As it was before the packet.
    Register<bit<8>, place_t>(PLACES) place_has_values;
    RegisterAction<bit<8>, place_t, bit<8>>(place_has_values) has_values_put = {
        void apply(inout bit<8> cell) {
            cell = meta.state;
        }
    };
    RegisterAction<bit<8>, place_t, bit<8>>(place_has_values) has_values_add = {
        void apply(inout bit<8> cell, out bit<8> found) {
            found = cell;
            cell = cell | meta.state;
        }
    };
    Register<bit<8>, place_t>(PLACES) place_exponent;
    RegisterAction<bit<8>, place_t, bit<8>>(place_exponent) exponent_put = {
        void apply(inout bit<8> cell, out bit<8> found) {
            cell = hdr.aggregation.next_exponent;
            found = cell;
        }
    };
    RegisterAction<bit<8>, place_t, bit<8>>(place_exponent) exponent_add = {
        void apply(inout bit<8> cell, out bit<8> found) {
            cell = max(cell, hdr.aggregation.next_exponent);
            found = cell;
        }
    };
    RegisterAction<bit<8>, place_t, bit<8>>(place_exponent) exponent_read = {
        void apply(inout bit<8> cell, out bit<8> found) {
            found = cell;
        }
    };

#define PLACE meta.block_place[PLACE_BITS - 1:0]
    action do_workers_put() { hdr.aggregation.workers = workers_put.execute(PLACE); }
    action do_workers_add() { hdr.aggregation.workers = workers_add.execute(PLACE); }
    action do_workers_read() { hdr.aggregation.workers = workers_read.execute(PLACE); }
    action do_present_put() { present_put.execute(PLACE); }
    action do_present_add() { meta.complete = present_add.execute(PLACE); }
    action do_present_read() { meta.complete = present_read.execute(PLACE); }
    action do_pending_put() { pending_put.execute(PLACE); }
    action do_pending_add() { pending_add.execute(PLACE); }
    action do_pending_end() { meta.lacks = pending_end.execute(PLACE); }
    action do_pending_look() { meta.lacks = pending_look.execute(PLACE); }
    action do_state_put() { meta.sum_state = state_put.execute(PLACE); }
    action do_state_add() { meta.sum_state = state_add.execute(PLACE); }
    action do_has_values_put() { has_values_put.execute(PLACE); }
    action do_has_values_add() { meta.place_state = has_values_add.execute(PLACE); }
    action do_exponent_put() { hdr.aggregation.next_exponent = exponent_put.execute(PLACE); }
    action do_exponent_add() { hdr.aggregation.next_exponent = exponent_add.execute(PLACE); }
    action do_exponent_read() { hdr.aggregation.next_exponent = exponent_read.execute(PLACE); }

    // One register each: what is done to it when a sum begins, grows, and is asked for.
#define BY_OPERATION(name, take, add, repeat) \
    @hidden \
    table name { \
        key = { meta.op: exact; } \
        actions = { take; add; repeat; NoAction; } \
        const default_action = NoAction(); \
        const entries = { \
            Op.TAKE: take(); \
            Op.ADD: add(); \
            Op.REPEAT: repeat(); \
        } \
    }
#define BY_OPERATION_OF_TWO(name, take, add) \
    @hidden \
    table name { \
        key = { meta.op: exact; } \
        actions = { take; add; NoAction; } \
        const default_action = NoAction(); \
        const entries = { \
            Op.TAKE: take(); \
            Op.ADD: add(); \
            Op.REPEAT: add(); \
        } \
    }

    @stage(9)
    BY_OPERATION(workers, do_workers_put, do_workers_add, do_workers_read)
    @stage(9)
    BY_OPERATION(present, do_present_put, do_present_add, do_present_read)
    @stage(9)
    @hidden
    table pending {
        key = {
            meta.op: ternary;
            meta.bridge.values: ternary;
        }
        actions = { do_pending_put; do_pending_add; do_pending_end; do_pending_look; NoAction; }
        const default_action = NoAction();
        const entries = {
            (Op.TAKE, _): do_pending_put();
            (Op.ADD, _): do_pending_add();
            (_, OTHERS_ADD): do_pending_end();
            (_, OTHERS_WRITE): do_pending_end();
            (_, OTHERS_READ): do_pending_look();
            (_, OTHERS_MAKE): do_pending_look();
        }
    }

    @stage(10)
    BY_OPERATION(exponent, do_exponent_put, do_exponent_add, do_exponent_read)
    @stage(10)
    BY_OPERATION_OF_TWO(state, do_state_put, do_state_add)
    @stage(10)
    BY_OPERATION_OF_TWO(has_values, do_has_values_put, do_has_values_add)

    apply {
        if (meta.bridge.step == STEP_FINISH) {
            unlock.execute(meta.block_place[PLACE_BITS - 1:0]);
        } else if (meta.act == Act.CONTRIBUTE && meta.may_take != TAKE_OWN) {
            meta.lock = take_lock.execute(meta.block_place[PLACE_BITS - 1:0]);
        }
        owner.apply();
        owner_block.apply();
        if (meta.owner_block == hdr.aggregation.block) {
            meta.is_block = 1;
        }
        generation.apply();
        child.apply();
        worker.apply();
        operation.apply();
        present.apply();
        workers.apply();
        pending.apply();
        exponent.apply();
        state.apply();
        has_values.apply();
    }
}
