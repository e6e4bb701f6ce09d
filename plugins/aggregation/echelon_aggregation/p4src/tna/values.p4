// SPDX-License-Identifier: Apache-2.0
// The values of all places: 32 registers over all stages, in each of which a place has values n and n + 32. A packet has
// one half of its values at a time in containers that stages read.

#define VALUE(n, at) \
    Register<pair_t, place_t>(PLACES) place_sum_##n; \
    RegisterAction<pair_t, place_t, bit<32>>(place_sum_##n) add_##n = { \
        void apply(inout pair_t sum, out bit<32> found) { \
            sum.first = sum.first + hdr.half.v##n; \
            found = sum.first; \
        } \
    }; \
    RegisterAction<pair_t, place_t, bit<32>>(place_sum_##n) write_##n = { \
        void apply(inout pair_t sum, out bit<32> found) { \
            sum.first = hdr.half.v##n; \
            found = sum.first; \
        } \
    }; \
    RegisterAction<pair_t, place_t, bit<32>>(place_sum_##n) add_other_##n = { \
        void apply(inout pair_t sum, out bit<32> found) { \
            sum.second = sum.second + hdr.half.v##n; \
            found = sum.second; \
        } \
    }; \
    RegisterAction<pair_t, place_t, bit<32>>(place_sum_##n) write_other_##n = { \
        void apply(inout pair_t sum, out bit<32> found) { \
            sum.second = hdr.half.v##n; \
            found = sum.second; \
        } \
    }; \
    action do_add_##n() { hdr.half.v##n = add_##n.execute(meta.bridge.place[PLACE_BITS - 1:0]); } \
    action do_write_##n() { hdr.half.v##n = write_##n.execute(meta.bridge.place[PLACE_BITS - 1:0]); } \
    action do_add_other_##n() { hdr.half.v##n = add_other_##n.execute(meta.bridge.place[PLACE_BITS - 1:0]); } \
    action do_write_other_##n() { hdr.half.v##n = write_other_##n.execute(meta.bridge.place[PLACE_BITS - 1:0]); } \
    @stage(at) \
    @hidden \
    table sum_##n { \
        key = { meta.bridge.values: exact; } \
        actions = { do_add_##n; do_write_##n; do_add_other_##n; do_write_other_##n; NoAction; } \
        const default_action = NoAction(); \
        const entries = { \
            VALUES_ADD: do_add_##n(); \
            VALUES_WRITE: do_write_##n(); \
            VALUES_READ: do_add_##n(); \
            VALUES_MAKE: do_add_##n(); \
            OTHERS_ADD: do_add_other_##n(); \
            OTHERS_WRITE: do_write_other_##n(); \
            OTHERS_READ: do_add_other_##n(); \
            OTHERS_MAKE: do_add_other_##n(); \
        } \
    }

#define APPLY_VALUE(n, at) sum_##n.apply();

struct pair_t {
    bit<32> first;
    bit<32> second;
}

control Values(inout headers_t hdr, inout metadata_t meta) {
    EACH_OF_HALF(VALUE)

    apply {
        EACH_OF_HALF(APPLY_VALUE)
        // What the packet does not have is 0, so that to add it is to read.
        if (meta.bridge.values == VALUES_READ || meta.bridge.values == VALUES_MAKE
            || meta.bridge.values == OTHERS_READ || meta.bridge.values == OTHERS_MAKE) {
            hdr.half.setValid();
        }
    }
}
